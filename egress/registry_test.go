package egress

import (
	"context"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"corral/egress/control"
)

// A mirrors is a registry of npm at alpha that can be switched off, and a mirror of Debian at beta, by plain HTTP.
type mirrors struct {
	w    *world
	file atomic.Pointer[string] // what it sends as demo-1.0.0.tgz
	off  atomic.Bool
	hits atomic.Int64
}

// right is the content of demo-1.0.0.tgz, larger than what is buffered.
var right = strings.Repeat("of the package\n", 20_000)

func (w *world) packages(token string) *mirrors {
	w.t.Helper()
	p := &mirrors{w: w}
	p.file.Store(&right)
	sum := sha512.Sum512([]byte(right))
	handler := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		p.hits.Add(1)
		switch {
		case p.off.Load():
			panic(http.ErrAbortHandler)
		case token != "" && r.Header.Get("Authorization") != "Bearer "+token:
			http.Error(rw, "who are you?", http.StatusUnauthorized)
		case r.URL.Path == "/demo":
			rw.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(rw, `{"versions":{"1.0.0":{"dist":{"tarball":"https://%s/demo/-/demo-1.0.0.tgz","integrity":"sha512-%s"}}}}`,
				r.Host, base64.StdEncoding.EncodeToString(sum[:]))
		case r.URL.Path == "/demo/-/demo-1.0.0.tgz":
			content := *p.file.Load()
			rw.Header().Set("Content-Length", fmt.Sprint(len(content)))
			_, _ = io.WriteString(rw, content)
		case r.URL.Path == "/debian/dists/stable/InRelease":
			_, _ = io.WriteString(rw, "signed")
		default:
			http.NotFound(rw, r)
		}
	})
	leaf, err := w.authority.Leaf("alpha.example.org")
	if err != nil {
		w.t.Fatal(err)
	}
	secure := &httptest.Server{Listener: w.internet.Listen(netip.AddrPortFrom(alpha, 443)), Config: &http.Server{Handler: handler}, EnableHTTP2: true}
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{*leaf}}
	secure.StartTLS()
	w.t.Cleanup(secure.Close)
	plain := &httptest.Server{Listener: w.internet.Listen(netip.AddrPortFrom(beta, 80)), Config: &http.Server{Handler: handler}}
	plain.Start()
	w.t.Cleanup(plain.Close)
	return p
}

// fetch makes a request of the job, with HTTP/2 if h2 is set.
func (d *jobDoor) fetch(trusted *x509.CertPool, h2 bool, method, url, authorization string) (string, error) {
	d.w.t.Helper()
	tr := &http.Transport{
		DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
			name, port, _ := strings.Cut(address, ":")
			number := map[string]uint16{"80": 80, "443": 443}[port]
			return d.space.Dial(netip.AddrPortFrom(d.mustFind(name), number))
		},
		TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: h2,
	}
	defer tr.CloseIdleConnections()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		return "", err
	}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	reply, err := tr.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	return fmt.Sprintf("%d %s", reply.StatusCode, body), err
}

const (
	tarballURL = "https://alpha.example.org/demo/-/demo-1.0.0.tgz"
	pulling    = `{"allow":[{"host":"alpha.example.org","registry":"npm"},{"host":"beta.example.org","protocol":"http","registry":"debian"}],` + everything + `}`
)

// TestRegistry: what one job gets of a registry, the next one gets while the registry is off, by HTTP/1.1, HTTP/2 and without TLS.
func TestRegistry(t *testing.T) {
	w := newWorld(t, plenty)
	p := w.packages("")
	trusted := w.authorize()
	for job := range 2 {
		d := w.open(pulling, "")
		for _, h2 := range []bool{false, true} {
			for url, want := range map[string]string{
				"https://alpha.example.org/demo": `200 {"versions"`, tarballURL: "200 " + right, "http://beta.example.org/debian/dists/stable/InRelease": "200 signed",
			} {
				if got, err := d.fetch(trusted, h2, "GET", url, ""); err != nil || !strings.HasPrefix(got, want) {
					t.Errorf("job %d: %s: %.200q, %v, want %.50q", job, url, got, err, want)
				}
			}
		}
		for _, url := range []string{"https://alpha.example.org/demo", "http://beta.example.org/debian/"} {
			if got, err := d.fetch(trusted, true, "POST", url, ""); err != nil || !strings.HasPrefix(got, "403 corral: denied: no rule allows POST") {
				t.Errorf("job %d: POST %s: %.200q, %v", job, url, got, err)
			}
		}
		d.summary(control.KindClose)
		p.off.Store(true)
	}
}

// TestRegistryDigest: a file with another digest never reaches its job as a whole, is not kept, and is in the report.
func TestRegistryDigest(t *testing.T) {
	w := newWorld(t, plenty)
	p := w.packages("")
	trusted := w.authorize()
	d := w.open(pulling, "")
	wrong := "W" + right[1:]
	p.file.Store(&wrong)
	for _, h2 := range []bool{false, true} {
		if got, err := d.fetch(trusted, h2, "GET", tarballURL, ""); err == nil || len(got) >= len(right) {
			t.Errorf("the job got %d bytes, %v", len(got), err)
		}
	}
	if s := d.report(); len(s.Denials) != 1 || !strings.Contains(s.Denials[0].Why, "another digest") || s.Denials[0].Count != 2 {
		t.Errorf("%+v", s)
	}
	p.file.Store(&right)
	if got, err := d.fetch(trusted, true, "GET", tarballURL, ""); err != nil || got != "200 "+right {
		t.Errorf("%.50q, %v", got, err)
	}
}

// TestRegistrySecret: a secret is in requests to the registry, and nowhere in the store.
func TestRegistrySecret(t *testing.T) {
	w := newWorld(t, plenty)
	p := w.packages(secretValue)
	trusted := w.authorize()
	with := strings.Replace(pulling, `"registry":"npm"`, `"secret":"acme","registry":"npm"`, 1)
	d := w.open(with, "")
	if got, err := d.fetch(trusted, true, "GET", tarballURL, "Bearer "+placeholder); err != nil || got != "200 "+right {
		t.Errorf("%.200q, %v", got, err)
	}
	if got, err := d.fetch(trusted, true, "GET", tarballURL, ""); err != nil || !strings.HasPrefix(got, "401 ") {
		t.Errorf("without the placeholder: %.200q, %v", got, err)
	}
	p.off.Store(true)
	if got, err := d.fetch(trusted, true, "GET", tarballURL, "Bearer "+placeholder); err != nil || got != "200 "+right {
		t.Errorf("kept: %.200q, %v", got, err)
	}
	// With a user that the job chose, it may be another answer.
	login := "Basic " + base64.StdEncoding.EncodeToString([]byte("somebody:"+placeholder))
	if got, err := d.fetch(trusted, true, "GET", tarballURL, login); err != nil || !strings.HasPrefix(got, "502 ") {
		t.Errorf("kept for a user: %.200q, %v", got, err)
	}
	// What was requested with a former value of the secret is not for a newer one.
	former := w.secrets
	w.secrets = []control.Secret{{Name: "acme", Header: "Authorization", Format: "Bearer {}", Value: "another-token"}}
	d.update(with)
	if got, err := d.fetch(trusted, true, "GET", tarballURL, "Bearer "+placeholder); err != nil || !strings.HasPrefix(got, "502 ") {
		t.Errorf("kept for a former value: %.200q, %v", got, err)
	}
	w.secrets = former
	d.update(with)
	if got, err := d.fetch(trusted, true, "GET", tarballURL, "Bearer "+placeholder); err != nil || got != "200 "+right {
		t.Errorf("kept for this value: %.200q, %v", got, err)
	}
	// A job of the same user whose rules do not have the secret.
	other := w.open(pulling, "")
	for _, authorization := range []string{"", "Bearer guessed"} {
		if got, err := other.fetch(trusted, true, "GET", tarballURL, authorization); err != nil || !strings.HasPrefix(got, "502 ") {
			t.Errorf("without the secret: %.200q, %v", got, err)
		}
	}
	names, err := os.ReadDir(w.kept)
	if err != nil || len(names) != 3 {
		t.Errorf("%v, %v", names, err)
	}
	for _, name := range names {
		if b, err := os.ReadFile(filepath.Join(w.kept, name.Name())); err != nil || strings.Contains(string(b), secretValue) || strings.Contains(string(b), placeholder) {
			t.Errorf("%s has the secret, or %v", name, err)
		}
	}
}

// TestRegistryChange: a rule that is changed to one of a registry, or from one, applies to the next request.
func TestRegistryChange(t *testing.T) {
	w := newWorld(t, plenty)
	p := w.packages("")
	trusted := w.authorize()
	d := w.open(pulling, "")
	if got, err := d.fetch(trusted, false, "GET", tarballURL, ""); err != nil || got != "200 "+right {
		t.Errorf("%.200q, %v", got, err)
	}
	d.update(strings.Replace(pulling, `"registry":"npm"`, `"registry":"npm","min_age":604800000000000`, 1))
	if got, err := d.fetch(trusted, false, "GET", tarballURL, ""); err != nil || !strings.HasPrefix(got, "403 corral: denied: nobody knows when") {
		t.Errorf("with min_age: %.200q, %v", got, err)
	}
	d.update(strings.Replace(pulling, `"registry":"npm"`, `"methods":["GET"]`, 1))
	before := p.hits.Load()
	if got, err := d.fetch(trusted, false, "GET", tarballURL, ""); err != nil || got != "200 "+right || p.hits.Load() != before+1 {
		t.Errorf("no registry any more: %.200q, %v", got, err)
	}
}
