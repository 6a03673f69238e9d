package relay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"corral/egress/authority"
	"corral/internal/test/sandboxtest"
)

const (
	placeholder = "corral-0123456789abcdef"
	value       = "s3cret+value/of=acme"
)

// A secureWorld is an inspecting relay to an HTTPS server.
type secureWorld struct {
	t     *testing.T
	relay *Relay
	jobs  *x509.CertPool // what jobs trust

	mu     sync.Mutex
	denied []string
	got    []string // requests at the server
	shut   bool     // the rules allow nothing any more
	served sync.WaitGroup
}

func pool(t *testing.T, a *Issuer) *x509.CertPool {
	t.Helper()
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(a.PEM()) {
		t.Fatal("no certificate")
	}
	return p
}

func newAuthority(t *testing.T) *Issuer {
	t.Helper()
	a, err := authority.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return NewIssuer(a)
}

// newSecure returns a relay for GET and POST of paths below /open to a server whose certificate is for name. answer may be nil.
func newSecure(t *testing.T, name string, secret *Secret, answer http.HandlerFunc) *secureWorld {
	t.Helper()
	internet, ours := newAuthority(t), newAuthority(t)
	w := &secureWorld{t: t, jobs: pool(t, ours)}
	leaf, err := internet.Leaf(name)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, in *http.Request) {
		body, _ := io.ReadAll(in.Body)
		w.mu.Lock()
		w.got = append(w.got, fmt.Sprintf("%s %s %s %s %q", in.Method, in.Host, in.RequestURI, in.Header.Get("Authorization"), body))
		all := fmt.Sprint(in.RequestURI, in.Header, in.Trailer)
		if secret == nil || !secret.Body {
			all += string(body)
		}
		w.mu.Unlock()
		if strings.Contains(in.Header.Get("Authorization"), value) && in.Header.Get("Accept-Encoding") != "identity" {
			t.Errorf("a response with the secret may be compressed: %q", in.Header["Accept-Encoding"])
		}
		if strings.Contains(all, placeholder) {
			t.Errorf("the server got the placeholder: %s", all)
		}
		if answer != nil {
			answer(rw, in)
			return
		}
		rw.Header().Set("Alt-Svc", `h3=":443"`)
		_, _ = io.WriteString(rw, "hello")
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{*leaf}}
	server.EnableHTTP2 = true
	server.Config.ErrorLog = nowhere()
	server.StartTLS()
	dial := func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}
	w.relay = NewInspecting("example.org", 443, dial, Inspection{
		Certificate: ours.Leaf, Roots: pool(t, internet), Placeholder: placeholder,
		Allow: func(method, path string) (*Secret, string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.shut || method == http.MethodPost && strings.HasPrefix(path, "/open/read/") {
				return nil, "no rule allows " + method + " " + path
			}
			if method != http.MethodGet && method != http.MethodPost || !strings.HasPrefix(path, "/open") {
				return nil, "no rule allows " + method + " " + path
			}
			if strings.HasPrefix(path, "/open/without/") {
				return nil, ""
			}
			return secret, ""
		},
		Deny: func(d *Denied) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.denied = append(w.denied, d.Why)
		},
	})
	t.Cleanup(func() {
		w.served.Wait()
		w.relay.Close()
		server.Close()
	})
	return w
}

// connect returns a connection of a job.
func (w *secureWorld) connect() net.Conn {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	inside, err := l.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	w.served.Go(func() { _ = w.relay.Serve(context.Background(), inside) })
	w.t.Cleanup(func() { client.Close() })
	return client
}

// client returns a client of a job, which trusts the authority of jobs alone.
func (w *secureWorld) client(http2 bool) *http.Client {
	tr := &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return w.connect(), nil },
		TLSClientConfig:   &tls.Config{RootCAs: w.jobs, ServerName: "example.org"},
		ForceAttemptHTTP2: http2, DisableCompression: true,
	}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func (w *secureWorld) take() (got, denied []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	got, denied, w.got, w.denied = w.got, w.denied, nil, nil
	return got, denied
}

// TestInspected: requests that are allowed reach the server, and no other does, with either version of HTTP.
func TestInspected(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		w := newSecure(t, "example.org", nil, nil)
		c := w.client(http2)
		for _, tt := range []struct {
			method, url, host string
			status            int
			why               string
		}{
			{"GET", "https://example.org/open/a?b=c", "", 200, ""},
			{"POST", "https://example.org/open/%20", "", 200, ""},
			{"GET", "https://example.org/open", "example.org:443", 200, ""},
			{"DELETE", "https://example.org/open/a", "", 403, "no rule allows DELETE"},
			{"TRACE", "https://example.org/open/a", "", 403, "the method TRACE"},
			{"GET", "https://example.org/other", "", 403, "no rule allows GET /other"},
			{"GET", "https://example.org/open/../other", "", 403, "only dots"},
			{"GET", "https://example.org/open", "example.net", 421, `the host "example.net"`},
			{"GET", "https://example.org/open", "example.org:8443", 421, "the host"},
		} {
			in, err := http.NewRequest(tt.method, tt.url, strings.NewReader("body"))
			if err != nil {
				t.Fatal(err)
			}
			in.Host = tt.host
			reply, err := c.Do(in)
			if err != nil {
				t.Fatalf("%s %s: %v", tt.method, tt.url, err)
			}
			body, err := io.ReadAll(reply.Body)
			reply.Body.Close()
			got, denied := w.take()
			if err != nil || reply.StatusCode != tt.status || (reply.ProtoMajor == 2) != http2 || reply.Header.Get("Alt-Svc") != "" {
				t.Errorf("%s %s: %s %s %v, %v", tt.method, tt.url, reply.Proto, reply.Status, reply.Header, err)
			}
			if tt.status == 200 {
				if len(got) != 1 || !strings.HasSuffix(got[0], `"body"`) || string(body) != "hello" || len(denied) > 0 {
					t.Errorf("%s %s: server got %q, denied %q, answered %q", tt.method, tt.url, got, denied, body)
				}
				continue
			}
			if len(got) > 0 || len(denied) != 1 || !strings.Contains(denied[0], tt.why) || !strings.Contains(string(body), tt.why) {
				t.Errorf("%s %s: server got %q, denied %q, answered %q", tt.method, tt.url, got, denied, body)
			}
		}
	}
}

// TestUpstream: a server without a certificate for the name is not spoken to.
func TestUpstream(t *testing.T) {
	for name, change := range map[string]func(*secureWorld){
		"another name":      nil,
		"another authority": func(w *secureWorld) { w.relay.transport.TLSClientConfig.RootCAs = pool(t, newAuthority(t)) },
	} {
		server := "example.org"
		if change == nil {
			server = "example.net"
		}
		w := newSecure(t, server, nil, nil)
		if change != nil {
			change(w)
		}
		reply, err := w.client(false).Get("https://example.org/open")
		if err != nil {
			t.Fatal(err)
		}
		reply.Body.Close()
		if got, _ := w.take(); reply.StatusCode != http.StatusBadGateway || len(got) > 0 {
			t.Errorf("%s: %s, the server got %q", name, reply.Status, got)
		}
	}
	r := NewInspecting("example.org", 443, nil, Inspection{})
	if r.transport.TLSClientConfig.RootCAs == nil {
		t.Error("without authorities, those of files would be read")
	}
}

// TestOtherNames: a TLS connection for another name ends before the handshake.
func TestOtherNames(t *testing.T) {
	w := newSecure(t, "example.org", nil, nil)
	err := tls.Client(w.connect(), &tls.Config{ServerName: "example.net", InsecureSkipVerify: true}).Handshake()
	if err == nil || !strings.Contains(err.Error(), "remote error: tls: unrecognized name") {
		t.Errorf("%v, want an alert", err)
	}
}

// TestAmbiguous: the heads of HTTP/1.1 are checked as without TLS, also those after the first.
func TestAmbiguous(t *testing.T) {
	const host = "Host: example.org\r\n"
	for name, sent := range map[string]string{
		"CL.TE":        "POST /open HTTP/1.1\r\n" + host + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
		"two lengths":  "POST /open HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
		"two hosts":    "GET /open HTTP/1.1\r\n" + host + host + "\r\n",
		"obs-fold":     "GET /open HTTP/1.1\r\n" + host + "X: y\r\n z\r\n\r\n",
		"no HTTP":      "SSH-2.0-x\r\n\r\n",
		"CONNECT":      "CONNECT example.org:443 HTTP/1.1\r\n" + host + "\r\n",
		"another host": "GET https://example.net/open HTTP/1.1\r\n" + host + "\r\n",
		"not https":    "GET http://example.org/open HTTP/1.1\r\n" + host + "\r\n",
	} {
		w := newSecure(t, "example.org", nil, nil)
		conn := tls.Client(w.connect(), &tls.Config{ServerName: "example.org", RootCAs: w.jobs})
		if _, err := io.WriteString(conn, sent); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		answer, _ := io.ReadAll(conn)
		if got, denied := w.take(); len(got) > 0 || len(denied) != 1 || !bytes.HasPrefix(answer, []byte("HTTP/1.1 4")) {
			t.Errorf("%s: server got %q, denied %q, answered %q", name, got, denied, answer)
		}
	}
	w := newSecure(t, "example.org", nil, nil)
	conn := tls.Client(w.connect(), &tls.Config{ServerName: "example.org", RootCAs: w.jobs})
	_, _ = io.WriteString(conn, "GET /open/1 HTTP/1.1\r\n"+host+"\r\nGET /other HTTP/1.1\r\n"+host+"\r\n")
	reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || reply.StatusCode != 200 || !reply.Close {
		t.Errorf("%+v, %v, want a response that is the last one", reply, err)
	}
	if got, _ := w.take(); len(got) != 1 {
		t.Errorf("the server got %q, want the first request alone", got)
	}
}

// TestReadings: a path that servers read in several ways is denied, or must be allowed in each of them.
func TestReadings(t *testing.T) {
	for sent, want := range map[string][]string{
		"/": {"/"}, "/a/b": {"/a/b"}, "/a/b/": {"/a/b/"}, "/a%20b": {"/a b"}, "/%61": {"/a"}, "/a..b/.c": {"/a..b/.c"}, "/a;b": {"/a;b"},
		"/@types%2fnode": {"/@types/node", "/@types%2fnode"}, "/100%25": {"/100%"}, "/a?b=../c": {"/a"}, "/a?b HTTP/1.1": nil,
		"//a": nil, "/a//b": nil, "//": nil, "/a/../b": nil, "/a/.": nil, "/..": nil, "/%2e%2e/a": nil, "/a/%2E./b": nil, "/a%2f..%2fb": nil, "/a%5c..%5cb": nil,
		"/%252e%252e/a": nil, "/a%252f..%252fb": nil, "/a\\b": nil, "/a%00": nil, "/a%0d%0ab": nil, "/..;/a": nil, "/.;x/a": nil, "/;/a": nil, "*": nil, "/a%7f": nil,
		"/a%252fb": {"/a%2fb", "/a/b"}, "/%25252e%25252e/a": nil, "/a%25252f..%25252fb": nil, "/%C3%A9": {"/é"}, "/%c0%ae%c0%ae/a": nil, "/a%ff": nil, "/a%25c0%25af": nil,
		"/%" + strings.Repeat("25", 20) + "41": nil,
	} {
		u, err := url.ParseRequestURI(sent)
		if err != nil {
			if want != nil {
				t.Errorf("%s: %v", sent, err)
			}
			continue
		}
		got, d := readings(u)
		if !slices.Equal(got, want) || (d == nil) != (want != nil) {
			t.Errorf("%s: %q, %v, want %q", sent, got, d, want)
		}
	}
}

func basic(login string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(login)) }

// TestSecret: the placeholder becomes the secret in its header of its host, and is denied in any other place.
func TestSecret(t *testing.T) {
	bearer := &Secret{Header: "authorization", Format: "Bearer {}", Value: value}
	for _, tt := range []struct {
		name   string
		secret *Secret
		change func(*http.Request)
		want   string // Authorization at the server; empty: denied
		why    string
	}{
		{"bearer", bearer, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+placeholder) }, "Bearer " + value, ""},
		{"token", bearer, func(r *http.Request) { r.Header.Set("Authorization", "token "+placeholder) }, "Bearer " + value, ""},
		{"a login", bearer, func(r *http.Request) { r.SetBasicAuth("user", placeholder) }, basic("user:" + value), ""},
		{"a trailer", bearer, func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer other")
			setBody(r, "")
			r.ContentLength, r.Trailer = -1, http.Header{"X-Trailer": {placeholder}}
		}, "Bearer other", ""},
		{"none", bearer, func(r *http.Request) { r.Header.Set("Authorization", "Bearer other") }, "Bearer other", ""},
		{"a path without", bearer, func(r *http.Request) {
			r.URL.Path = "/open/without/x"
			r.Header.Set("Authorization", placeholder)
		}, "", "not for it at this host"},
		{"a path that may be one without", bearer, func(r *http.Request) {
			r.URL.Path, r.URL.RawPath = "/open/without/x", "/open%2Fwithout/x"
			r.Header.Set("Authorization", placeholder)
		}, "", "not for it at this host"},
		{"a host without", nil, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+placeholder) }, "", "not for it at this host"},
		{"a login at a host without", nil, func(r *http.Request) { r.SetBasicAuth("user", placeholder) }, "", "not for it at this host"},
		{"a login, twice", bearer, func(r *http.Request) { r.SetBasicAuth(placeholder, placeholder) }, "", "several times"},
		{"twice", bearer, func(r *http.Request) { r.Header.Set("Authorization", placeholder+" "+placeholder) }, "", "several times"},
		{"another header", bearer, func(r *http.Request) { r.Header.Set("X-Other", placeholder) }, "", `header "X-Other"`},
		{"two values", bearer, func(r *http.Request) { r.Header["Authorization"] = []string{"Bearer " + placeholder, "x"} }, "", "not for it"},
		{"the name of a header", bearer, func(r *http.Request) { r.Header["X-"+placeholder] = []string{"x"} }, "", "the name of a header"},
		{"the path", bearer, func(r *http.Request) { r.URL.Path += "/" + placeholder }, "", "the address"},
		{"the query", bearer, func(r *http.Request) { r.URL.RawQuery = "a=" + placeholder }, "", "the address"},
		{"the query, escaped", bearer, func(r *http.Request) { r.URL.RawQuery = "a=" + strings.ReplaceAll(placeholder, "c", "%63") }, "", "the address"},
		{"the body", bearer, func(r *http.Request) { setBody(r, strings.Repeat("x", 100_000)+placeholder+"y") }, "", "the body"},
	} {
		for _, http2 := range []bool{false, true} {
			w := newSecure(t, "example.org", tt.secret, nil)
			in, err := http.NewRequest(http.MethodPost, "https://example.org/open", nil)
			if err != nil {
				t.Fatal(err)
			}
			tt.change(in)
			reply, err := w.client(http2).Do(in)
			if err == nil {
				reply.Body.Close()
			}
			got, denied := w.take()
			if tt.want == "" {
				if len(denied) == 0 || !strings.Contains(denied[0], tt.why) || err == nil && reply.StatusCode == 200 {
					t.Errorf("%s, HTTP/2 %v: server got %.300q, denied %q, answered %v, %v", tt.name, http2, got, denied, reply, err)
				}
				continue
			}
			if err != nil || len(got) != 1 || got[0] != "POST example.org /open "+tt.want+` ""` || len(denied) > 0 {
				t.Errorf("%s, HTTP/2 %v: server got %q, denied %q, %v", tt.name, http2, got, denied, err)
			}
		}
	}
}

// TestSecretBody: where a secret allows it, a request has the placeholder in its body, and nothing takes its place there. In no other
// place may it be, as with any secret.
func TestSecretBody(t *testing.T) {
	secret := &Secret{Header: "Authorization", Format: "Bearer {}", Value: value, Body: true}
	for _, http2 := range []bool{false, true} {
		w := newSecure(t, "example.org", secret, nil)
		send := func(change func(*http.Request)) (int, error) {
			in, err := http.NewRequest(http.MethodPost, "https://example.org/open", strings.NewReader("key="+placeholder))
			if err != nil {
				t.Fatal(err)
			}
			in.Header.Set("Authorization", "Bearer "+placeholder)
			change(in)
			reply, err := w.client(http2).Do(in)
			if err != nil {
				return 0, err
			}
			return reply.StatusCode, reply.Body.Close()
		}
		status, err := send(func(*http.Request) {})
		got, denied := w.take()
		if want := fmt.Sprintf("POST example.org /open Bearer %s %q", value, "key="+placeholder); err != nil || status != 200 || len(got) != 1 ||
			got[0] != want || len(denied) > 0 {
			t.Errorf("HTTP/2 %v: %d, %v, server got %q, want %q, denied %q", http2, status, err, got, want, denied)
		}
		if status, err = send(func(r *http.Request) { r.Header.Set("X-Other", placeholder) }); err != nil || status != 403 {
			t.Errorf("HTTP/2 %v: another header: %d, %v", http2, status, err)
		}
		if status, err = send(func(r *http.Request) { r.URL.Path = "/open/without/x"; r.Header.Del("Authorization") }); err == nil && status == 200 {
			t.Errorf("HTTP/2 %v: a path whose rule has no secret: %d", http2, status)
		}
	}
}

func setBody(r *http.Request, body string) {
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
}

// TestEcho: a response that has the secret in it does not reach the job with it.
func TestEcho(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"header": func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Echo", r.Header.Get("Authorization")) },
		"body": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "<"+r.Header.Get("Authorization")+">")
		},
		"parts of a body": func(w http.ResponseWriter, _ *http.Request) {
			for _, c := range []byte(value) {
				_, _ = w.Write([]byte{c})
				_ = http.NewResponseController(w).Flush()
			}
		},
		"escaped": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a="+url.QueryEscape(value)) },
		"early hints": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "<"+value+">")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
		},
		"trailer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Echo")
			_, _ = io.WriteString(w, "hello")
			w.Header().Set("X-Echo", value)
		},
		"compressed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, value)
			_ = z.Close()
		},
	} {
		for _, http2 := range []bool{false, true} {
			w := newSecure(t, "example.org", &Secret{Header: "Authorization", Format: "Bearer {}", Value: value}, answer)
			in, err := http.NewRequest(http.MethodGet, "https://example.org/open", nil)
			if err != nil {
				t.Fatal(err)
			}
			in.Header.Set("Authorization", "Bearer "+placeholder)
			in = in.WithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(status int, header textproto.MIMEHeader) error {
					t.Errorf("%s, HTTP/2 %v: the job got %d %v", name, http2, status, header)
					return nil
				},
			}))
			reply, err := w.client(http2).Do(in)
			got, denied := w.take() // the response can have been denied already, although the client has only its header
			if len(got) != 1 || !strings.Contains(got[0], value) {
				t.Errorf("%s: the server got %q", name, got)
			}
			if name == "header" && (err != nil || reply.StatusCode != http.StatusBadGateway) {
				t.Errorf("%s, HTTP/2 %v: %v, %v, want 502", name, http2, reply, err)
			}
			if err != nil {
				continue
			}
			body, err := io.ReadAll(reply.Body)
			reply.Body.Close()
			_, later := w.take()
			if denied = append(denied, later...); strings.HasSuffix(name, "body") && !slices.Contains(denied, errEcho.Why) {
				t.Errorf("%s, HTTP/2 %v: denied %q", name, http2, denied)
			}
			if seen := fmt.Sprint(reply.Header, string(body), reply.Trailer); strings.Contains(seen, value) || strings.Contains(seen, url.QueryEscape(value)) {
				t.Errorf("%s, HTTP/2 %v: the job got %s", name, http2, seen)
			}
			// Without early hints, and in HTTP/1.1 without a trailer, the response is a good one.
			if err == nil && reply.StatusCode == 200 && name != "early hints" && (name != "trailer" || http2) {
				t.Errorf("%s, HTTP/2 %v: a response with the secret ended well: %q", name, http2, body)
			}
		}
	}
}

// TestLogin: what a job wrote around a secret is told without it.
func TestLogin(t *testing.T) {
	s := &Secret{Format: "Bearer {}", Value: value}
	basic := func(login string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(login)) }
	for sent, want := range map[string]string{
		"Bearer " + value: "", basic("user:" + value): "user:{}", basic(value + ":x"): "{}:x", "other " + value: "other {}",
	} {
		if got := s.Login(sent); got != want {
			t.Errorf("%q: %q, want %q", sent, got, want)
		}
	}
}

// TestEchoForms: the secret is found in the forms in which programs write what they were sent, wherever it is in them.
func TestEchoForms(t *testing.T) {
	s := &Secret{Value: `a/b+c"d\e<f g`}
	for before := range 4 {
		for after := range 4 {
			text := strings.Repeat("x", before) + s.Value + strings.Repeat("y", after)
			quoted, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			for name, form := range map[string]string{
				"as it is": text, "JSON of Go": string(quoted), "JSON": strconv.Quote(text), "JSON of PHP": strings.ReplaceAll(strconv.Quote(text), "/", `\/`),
				"HTML": html.EscapeString(text), "a query": url.QueryEscape(text), "a path": url.PathEscape(text), "a query in lower case": strings.ToLower(url.QueryEscape(text)),
				"base64": base64.StdEncoding.EncodeToString([]byte(text)), "base64 of URLs": base64.RawURLEncoding.EncodeToString([]byte(text)),
			} {
				body := io.NopCloser(strings.NewReader("<" + form + ">"))
				if got, err := io.ReadAll(&watched{ReadCloser: body, texts: (&Inspection{}).guard(s), err: errEcho}); !errors.Is(err, errEcho) {
					t.Errorf("%s: %q passes as %q", name, text, got)
				}
			}
		}
	}
}

// TestBasicForms: of a secret that is a login in base64, the password is looked for, too.
func TestBasicForms(t *testing.T) {
	login := "someone:a long password"
	s := &Secret{Header: "Authorization", Format: "Basic {}", Value: base64.StdEncoding.EncodeToString([]byte(login))}
	for _, text := range []string{s.Value, login, "a long password", "a+long+password", base64.StdEncoding.EncodeToString([]byte("a long password"))} {
		body := io.NopCloser(strings.NewReader("<" + text + ">"))
		if got, err := io.ReadAll(&watched{ReadCloser: body, texts: (&Inspection{}).guard(s), err: errEcho}); !errors.Is(err, errEcho) {
			t.Errorf("%q passes as %q", text, got)
		}
	}
}

// TestGuard: what a host tells a job besides the body of the response has no secret: errors that quote the host, and parts of a
// response. A response to another request than the one with the secret has none either.
func TestGuard(t *testing.T) {
	secret := &Secret{Header: "Authorization", Format: "Bearer {}", Value: value}
	hijack := func(w http.ResponseWriter, answer string) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, answer)
		conn.Close()
	}
	for name, tt := range map[string]struct {
		change func(*http.Request)
		answer http.HandlerFunc
		status int
	}{
		"a password": {
			func(r *http.Request) { r.SetBasicAuth("x", placeholder) },
			func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Echo", r.Header.Get("Authorization")) }, 502,
		},
		"an error": {nil, func(w http.ResponseWriter, r *http.Request) {
			hijack(w, "HTTP/1.1 200 OK\r\n"+r.Header.Get("Authorization")+"\r\n\r\n")
		}, 502},
		"compressed again": {nil, func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Encoding"] = []string{"identity", "gzip"}
		}, 502},
		"a range": {
			func(r *http.Request) {
				r.Header["Range"], r.Header["If-Range"] = []string{"bytes=0-12"}, []string{`"x"`}
			},
			func(w http.ResponseWriter, r *http.Request) {
				if len(r.Header["Range"])+len(r.Header["If-Range"]) > 0 {
					t.Errorf("the server was asked for a part: %v", r.Header)
				}
			}, 200,
		},
		"another request": {
			func(r *http.Request) { r.Header.Del("Authorization") },
			func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Kept", value) }, 502,
		},
		"a request without": {
			func(r *http.Request) { r.URL.Path = "/open/without/x"; r.Header.Del("Authorization") },
			func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Kept", value) }, 502,
		},
	} {
		w := newSecure(t, "example.org", secret, tt.answer)
		w.relay.inspect.Secrets = func() []*Secret { return []*Secret{secret} }
		w.relay.transport.ForceAttemptHTTP2 = false
		in, err := http.NewRequest(http.MethodGet, "https://example.org/open", nil)
		if err != nil {
			t.Fatal(err)
		}
		in.Header.Set("Authorization", "Bearer "+placeholder)
		if tt.change != nil {
			tt.change(in)
		}
		reply, err := w.client(false).Do(in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		body, err := io.ReadAll(reply.Body)
		reply.Body.Close()
		got, denied := w.take()
		if told := fmt.Sprint(reply.Header, string(body), denied); err != nil || reply.StatusCode != tt.status || strings.Contains(told, value) || len(got) != 1 {
			t.Errorf("%s: %s, %s, %v; the server got %q", name, reply.Status, told, err, got)
		}
	}
}

// TestUnread: what is sent in HTTP/2 and not read is bounded, for a job as for a host.
func TestUnread(t *testing.T) {
	w := newSecure(t, "example.org", nil, nil)
	job := tls.Client(w.connect(), &tls.Config{ServerName: "example.org", RootCAs: w.jobs, NextProtos: []string{"h2"}})
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	if _, err := io.WriteString(job, preface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		t.Fatal(err)
	}
	if of, all := windows(t, job); of > maxUnreadUp || all > maxUnreadUp+65535 {
		t.Errorf("a job may send %d bytes of a request and %d in all, which nobody reads", of, all)
	}
	job.Close()

	ends := newAuthority(t)
	leaf, err := ends.Leaf("example.org")
	if err != nil {
		t.Fatal(err)
	}
	w.relay.transport.TLSClientConfig.RootCAs = pool(t, ends)
	client, server := net.Pipe()
	w.relay.dial = func(context.Context) (net.Conn, error) { return client, nil }
	done := make(chan struct{})
	go func() {
		defer close(done)
		reply, err := w.client(true).Get("https://example.org/open")
		if err == nil {
			reply.Body.Close()
		}
	}()
	host := tls.Server(server, &tls.Config{Certificates: []tls.Certificate{*leaf}, NextProtos: []string{"h2"}})
	if _, err := io.ReadFull(host, make([]byte, len(preface))); err != nil {
		t.Fatal(err)
	}
	if of, all := windows(t, host); of > maxUnreadAnswer || all > maxUnreadDown+65535 {
		t.Errorf("a host may send %d bytes of a response and %d in all, which nobody reads", of, all)
	}
	server.Close()
	<-done
}

// windows returns how much an end of HTTP/2 receives unread, of a request and of all: what its SETTINGS say, and the WINDOW_UPDATE
// after them (RFC 9113, section 6.9).
func windows(t *testing.T, conn io.Reader) (of, all int) {
	t.Helper()
	of, all = 65535, 65535
	for seen := false; ; {
		head := make([]byte, 9)
		if _, err := io.ReadFull(conn, head); err != nil {
			t.Fatal(err)
		}
		body := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(conn, body); err != nil {
			t.Fatal(err)
		}
		switch {
		case head[3] == 8 && seen:
			return of, all + int(binary.BigEndian.Uint32(body))
		case head[3] == 4 && head[4]&1 == 0:
			seen, of = true, initialWindow(body, of)
		case seen && head[3] != 4:
			return of, all
		}
	}
}

// initialWindow returns what SETTINGS say of a stream's window, or what it is without.
func initialWindow(settings []byte, without int) int {
	for ; len(settings) >= 6; settings = settings[6:] {
		if binary.BigEndian.Uint16(settings) == 4 {
			return int(binary.BigEndian.Uint32(settings[2:]))
		}
	}
	return without
}

// TestWatched: a body without the text passes unchanged, and one with it does not pass beyond its beginning, however it is read.
func TestWatched(t *testing.T) {
	const text = "aabaac"
	for body, found := range map[string]bool{
		"": false, "a": false, "aabaa": false, "aabaab": false, "xaabaax": false, "aabaac": true, "aabaabaac": true, "xxaabaacxx": true, "aaabaac": true, "aabaaabaa": false,
	} {
		for name, read := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "with the end": iotest.DataErrReader, "half": iotest.HalfReader,
		} {
			got, err := io.ReadAll(&watched{ReadCloser: io.NopCloser(read(strings.NewReader(body))), texts: guard{[]byte(text)}, err: errEcho})
			if found != errors.Is(err, errEcho) || !found && (err != nil || string(got) != body) {
				t.Errorf("%s of %q: %q, %v", name, body, got, err)
			}
			if at := strings.Index(body, text); found && (len(got) > at || !strings.HasPrefix(body, string(got))) {
				t.Errorf("%s of %q: passed on %q", name, body, got)
			}
		}
	}
}

// TestEnter: a request that may not be served now is answered with 503 and reaches no host; one that may is counted until its end.
func TestEnter(t *testing.T) {
	w := newSecure(t, "example.org", nil, nil)
	busy, under := true, 0
	w.relay.inspect.Enter = func(context.Context) (func(), error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if busy {
			return nil, errors.New("too many requests")
		}
		under++
		return func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			under--
		}, nil
	}
	client := w.client(false)
	get := func(want int) {
		t.Helper()
		reply, err := client.Get("https://example.org/open")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, reply.Body)
		reply.Body.Close()
		got, _ := w.take()
		if reply.StatusCode != want || (reply.Header.Get("Retry-After") != "") != (want == http.StatusServiceUnavailable) || (len(got) > 0) != (want == http.StatusOK) {
			t.Errorf("status %d, want %d; the server got %q", reply.StatusCode, want, got)
		}
	}
	get(http.StatusServiceUnavailable)
	w.mu.Lock()
	busy = false
	w.mu.Unlock()
	get(http.StatusOK)
	sandboxtest.Eventually(t, 20*time.Second, "the request is counted out", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return under == 0
	})
}
