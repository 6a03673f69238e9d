package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"corral/egress/authority"
	"corral/egress/control"
	"corral/internal/text"
)

const (
	placeholder = "corral-0123456789abcdef01234567"
	secretValue = "t0ken-of-acme"
)

// inspecting has rules about requests.
const inspecting = `{"allow":[{"host":"alpha.example.org","methods":["GET"],"paths":["/open/**"],"secret":"acme"}],` + everything + `}`

// authorize gives the doors that are opened from now on an authority, and all a secret. It returns what jobs trust.
func (w *world) authorize() *x509.CertPool {
	w.t.Helper()
	a, err := authority.New(time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	w.ours = encoded(w.t, a)
	w.secrets = []control.Secret{{Name: "acme", Header: "Authorization", Format: "Bearer {}", Value: secretValue}}
	pool := x509.NewCertPool()
	pool.AddCert(mustParse(w.t, a))
	return pool
}

func encoded(t *testing.T, a *authority.Authority) *control.Authority {
	t.Helper()
	m := new(control.Authority)
	var err error
	if m.Certificate, m.Key, err = a.Encode(); err != nil {
		t.Fatal(err)
	}
	return m
}

// website serves HTTPS at alpha, and answers with the request's Authorization unless that is the secret.
func (w *world) website() {
	w.t.Helper()
	w.serve(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer "+secretValue {
			_, _ = io.WriteString(rw, "welcome")
			return
		}
		_, _ = io.WriteString(rw, r.Header.Get("Authorization"))
	})
}

// serve serves HTTPS at alpha.
func (w *world) serve(answer http.HandlerFunc) {
	w.t.Helper()
	leaf, err := w.authority.Leaf("alpha.example.org")
	if err != nil {
		w.t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(answer)
	server.Listener.Close()
	server.Listener = w.internet.Listen(netip.AddrPortFrom(alpha, 443))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{*leaf}}
	server.EnableHTTP2 = true
	server.StartTLS()
	w.t.Cleanup(server.Close)
}

// transport returns a client of the job, which connects to alpha.
func (d *jobDoor) transport(trusted *x509.CertPool) *http.Transport {
	return &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return d.space.Dial(netip.AddrPortFrom(d.mustFind("alpha.example.org"), 443))
		},
		TLSClientConfig: &tls.Config{RootCAs: trusted},
	}
}

// TestHeadersDropped: a header that a rule about requests does not name, and that few clients send, does not reach the host; the log says so
// once. It does with a rule that names it, and with one that names neither methods nor paths.
func TestHeadersDropped(t *testing.T) {
	w := newWorld(t, plenty)
	w.serve(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, r.Header.Get("X-Acme-Tenant")+r.Header.Get("X-Github-Api-Version"))
	})
	trusted := w.authorize()
	d := w.open(inspecting, "")
	long := "X-Long-Y" + strings.Repeat("y", 2*maxDroppedName)
	send := func() string {
		t.Helper()
		tr := d.transport(trusted)
		tr.DisableKeepAlives = true
		r, err := http.NewRequest(http.MethodGet, "https://alpha.example.org/open/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Acme-Tenant", "mine")
		r.Header.Set(long, "mine")
		r.Header.Set("X-Github-Api-Version", "2022")
		reply, err := tr.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		b, err := io.ReadAll(reply.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for range 3 {
		if got := send(); got != "2022" {
			t.Errorf("the host got %q", got)
		}
	}
	told := 0
	for _, line := range w.log.lines(t) {
		if line["msg"] == "headers not passed on" {
			told++
			if fmt.Sprint(line["headers"]) != "[X-Acme-Tenant "+text.Cut(long, maxDroppedName)+"]" || line["host"] != "alpha.example.org" {
				t.Errorf("%v", line)
			}
		}
	}
	if told != 1 {
		t.Errorf("the log says it %d times", told)
	}
	for what, change := range map[string][2]string{
		"named":           {`"secret"`, `"headers":["x-acme-tenant"],"secret"`},
		"all are allowed": {`"methods":["GET"],"paths":["/open/**"],`, ""},
	} {
		d.update(strings.Replace(inspecting, change[0], change[1], 1))
		if got := send(); got != "mine2022" {
			t.Errorf("%s: the host got %q", what, got)
		}
	}
}

// ask makes a request of the job. The caller closes the body.
func (d *jobDoor) ask(trusted *x509.CertPool, method, path, authorization string) (*http.Response, error) {
	d.w.t.Helper()
	tr := d.transport(trusted)
	tr.DisableKeepAlives = true
	r, err := http.NewRequest(method, "https://alpha.example.org"+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", authorization)
	return tr.RoundTrip(r)
}

// get returns the response to a request of the job.
func (d *jobDoor) get(trusted *x509.CertPool, method, path, authorization string) (string, error) {
	d.w.t.Helper()
	reply, err := d.ask(trusted, method, path, authorization)
	if err != nil {
		return "", err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	return fmt.Sprintf("%d %s", reply.StatusCode, body), err
}

// TestInspecting: rules about requests are those in force at the time of the request, the placeholder becomes the secret where they
// say so, and denials are in the report.
func TestInspecting(t *testing.T) {
	w := newWorld(t, plenty)
	w.website()
	trusted := w.authorize()
	d := w.open(inspecting, "")
	for _, tt := range []struct{ method, path, authorization, want string }{
		{"GET", "/open/a", "Bearer " + placeholder, "200 welcome"},
		{"GET", "/open/a", "Bearer other", "200 Bearer other"},
		{"GET", "/other", "", "403 corral: denied: no rule allows"},
		{"DELETE", "/open/a", "", "403 corral: denied: no rule allows"},
	} {
		if got, err := d.get(trusted, tt.method, tt.path, tt.authorization); err != nil || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s %s %s: %q, %v, want %q", tt.method, tt.path, tt.authorization, got, err, tt.want)
		}
	}
	s := d.report()
	if s.Connections != 4 || s.Denied != 2 || len(s.Denials) != 1 || s.Denials[0].Port != 443 || !strings.Contains(s.Denials[0].Why, "/other") {
		t.Errorf("%+v", s)
	}
	if _, err := d.get(x509.NewCertPool(), "GET", "/open/a", ""); err == nil {
		t.Error("a job that does not trust the authority is connected")
	}
	d.update(strings.Replace(strings.Replace(inspecting, `,"secret":"acme"`, "", 1), "/open/**", "/other", 1))
	if got, err := d.get(trusted, "GET", "/other", ""); err != nil || !strings.HasPrefix(got, "200") {
		t.Errorf("after an update: %q, %v", got, err)
	}
	if got, err := d.get(trusted, "GET", "/other", "Bearer "+placeholder); err != nil || !strings.Contains(got, "not for it at this host") {
		t.Errorf("the placeholder without a secret: %q, %v", got, err)
	}
	for _, line := range w.log.lines(t) {
		if strings.Contains(fmt.Sprint(line), secretValue) {
			t.Errorf("the secret is in the log: %v", line)
		}
	}
}

// TestInspectingEnds: a connection that was passed on unread ends when a rule becomes one about requests, and the other way round.
func TestInspectingEnds(t *testing.T) {
	w := newWorld(t, plenty)
	w.authorize()
	w.website()
	plain := `{"allow":[{"host":"alpha.example.org"}],` + everything + `}`
	d := w.open(plain, "")
	pool := x509.NewCertPool()
	pool.AddCert(mustParse(t, w.authority.Authority))
	for _, next := range []string{inspecting, plain} {
		conn, err := d.space.Dial(netip.AddrPortFrom(d.mustFind("alpha.example.org"), 443))
		if err != nil {
			t.Fatal(err)
		}
		secure := tls.Client(conn, &tls.Config{ServerName: "alpha.example.org", InsecureSkipVerify: true})
		if err := secure.Handshake(); err != nil {
			t.Fatal(err)
		}
		d.update(next)
		mustEnd(t, conn)
	}
	if got, err := d.get(pool, "POST", "/any", "Bearer x"); err != nil || got != "200 Bearer x" {
		t.Errorf("passed on: %q, %v", got, err)
	}
}

// TestRequestsEnd: a request that is being served ends when newer rules do not allow it, or not with a secret. One that is allowed
// goes on.
func TestRequestsEnd(t *testing.T) {
	w := newWorld(t, plenty)
	trusted := w.authorize()
	more, gone := make(chan struct{}), make(chan struct{})
	w.serve(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, "begin ")
		_ = http.NewResponseController(rw).Flush()
		select {
		case <-more:
			_, _ = io.WriteString(rw, "end")
		case <-r.Context().Done():
			gone <- struct{}{}
			panic(http.ErrAbortHandler) // otherwise the response would end well
		}
	})
	for name, tt := range map[string]struct{ from, to string }{
		"allowed":    {`"methods":["GET"]`, `"methods":["GET","POST"]`},
		"the path":   {"/open/**", "/other"},
		"the method": {`"GET"`, `"POST"`},
		"the secret": {`,"secret":"acme"`, ""},
	} {
		d := w.open(inspecting, "")
		reply, err := d.ask(trusted, "GET", "/open/a", "Bearer "+placeholder)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := io.ReadFull(reply.Body, make([]byte, len("begin "))); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		d.update(strings.Replace(inspecting, tt.from, tt.to, 1))
		s := d.report() // after the update
		if len(s.Denials) > 0 {
			<-gone
		} else {
			more <- struct{}{}
		}
		rest, err := io.ReadAll(reply.Body)
		reply.Body.Close()
		if allowed := name == "allowed"; (err == nil) != allowed || (string(rest) == "end") != allowed {
			t.Errorf("%s: %q, %v", name, rest, err)
		}
		if (len(s.Denials) > 0) != (name != "allowed") {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestKept: a host that keeps a secret does not tell it in the response to a request that is given none.
func TestKept(t *testing.T) {
	w := newWorld(t, plenty)
	trusted := w.authorize()
	w.serve(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, secretValue) })
	d := w.open(strings.Replace(inspecting, `"allow":[`, `"allow":[{"host":"alpha.example.org","paths":["/kept"]},`, 1), "")
	if got, err := d.get(trusted, "GET", "/kept", ""); err == nil || strings.Contains(got, secretValue) {
		t.Errorf("%q, %v", got, err)
	}
}

// TestNoAuthority: without an authority, a rule about requests allows nothing.
func TestNoAuthority(t *testing.T) {
	w := newWorld(t, plenty)
	w.website()
	d := w.open(inspecting, "")
	if _, code := d.lookup("alpha.example.org"); code != dnsmessage.RCodeServerFailure {
		t.Errorf("%v, want SERVFAIL", code)
	}
	if s := d.report(); len(s.Denials) != 1 || s.Denials[0].Why != errAuthority.Error() {
		t.Errorf("%+v", s)
	}
	for name, m := range map[string]*control.Authority{"nothing": {}, "no key": {Certificate: mustParse(t, w.authority.Authority).Raw}} {
		w.ours = m
		if why := d.reopen(inspecting, ""); !strings.Contains(why, "authority") {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// TestSecretInBody: a body with the placeholder is passed on only if the secret of its rule says so.
func TestSecretInBody(t *testing.T) {
	w := newWorld(t, plenty)
	w.serve(func(rw http.ResponseWriter, r *http.Request) { _, _ = io.Copy(rw, r.Body) })
	trusted := w.authorize()
	for _, allowed := range []bool{false, true} {
		w.secrets[0].Body = allowed
		tr := w.open(strings.ReplaceAll(inspecting, `["GET"]`, `["POST"]`), "").transport(trusted)
		reply, err := (&http.Client{Transport: tr}).Post("https://alpha.example.org/open/a", "text/plain", strings.NewReader(placeholder))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(reply.Body)
		reply.Body.Close()
		tr.CloseIdleConnections()
		if err != nil || (string(got) == placeholder) != allowed || !allowed && !strings.Contains(string(got), "the body of the request has the placeholder") {
			t.Errorf("allowed %v: %s %q, %v", allowed, reply.Status, got, err)
		}
	}
}

// TestSecrets: a secret of a few bytes, which cannot be looked for in responses, is none. The secrets of a door are its own, and change
// with its rules; so is its authority.
func TestSecrets(t *testing.T) {
	w := newWorld(t, plenty)
	w.website()
	trusted := w.authorize()
	first := w.open(inspecting, "")
	must := func(d *jobDoor, trusted *x509.CertPool, want string) {
		t.Helper()
		if got, err := d.get(trusted, "GET", "/open/a", "Bearer "+placeholder); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	others := w.authorize()
	for _, secrets := range [][]control.Secret{nil, {{Name: "acme", Header: "Authorization", Format: "Bearer {}", Value: "short"}}} {
		w.secrets = secrets
		must(w.open(inspecting, ""), others, "403 corral: denied: the header")
	}
	must(first, trusted, "200 welcome")
	first.update(inspecting)
	must(first, trusted, "403 corral: denied: the header")
}
