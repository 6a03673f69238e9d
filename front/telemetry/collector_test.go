package telemetry

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"corral/internal/test/sandboxtest"
)

// TestCollectorAnswers: how many attempts follow each answer of a collector, and what is logged.
func TestCollectorAnswers(t *testing.T) {
	status := func(codes ...int) func(int, http.ResponseWriter) {
		return func(n int, w http.ResponseWriter) { w.WriteHeader(codes[min(n, len(codes))-1]) }
	}
	// {partial_success: {error_message: "no", rejected_spans: 3}}
	partial := []byte{0x0a, 0x06, 0x12, 0x02, 'n', 'o', 0x08, 0x03}
	for _, tt := range []struct {
		name     string
		answer   func(n int, w http.ResponseWriter)
		attempts int
		logged   string // "" means nothing
	}{
		{"accepted", status(202), 1, ""},
		{"busy, then accepted", status(503, 200), 2, ""},
		{"throttled, then accepted", func(n int, w http.ResponseWriter) {
			w.Header().Set("Retry-After", "1")
			status(429, 200)(n, w)
		}, 2, ""},
		{"busy", status(503), 3, "status 503"},
		{"wrong", status(400), 1, "status 400"},
		{"not allowed", status(401), 1, "status 401"},
		{"redirect", func(_ int, w http.ResponseWriter) {
			w.Header().Set("Location", "/else")
			w.WriteHeader(307)
		}, 1, "status 307"},
		{"partial success", func(_ int, w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			_, _ = w.Write(partial)
		}, 1, "rejected 3 spans"},
		{"full success with a message", func(_ int, w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			_, _ = w.Write([]byte{0x0a, 0x02, 0x08, 0x00})
		}, 1, ""},
		{"not protobuf", func(_ int, w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			_, _ = w.Write([]byte("\xff\xff\xff\xff\xff\xff"))
		}, 1, ""},
		{"a long page", func(_ int, w http.ResponseWriter) {
			w.WriteHeader(404)
			_, _ = w.Write([]byte(strings.Repeat("secret ", 1<<20)))
		}, 1, "status 404"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var logged journal
			s := newSite(t, tt.answer)
			tracer := open(t, Options{Traces: OTLP, Endpoint: s.url, Log: logged.log()})
			call(tracer, sampled, "")
			sandboxtest.Eventually(t, 20*time.Second, "an export", func() bool { return s.requests() >= tt.attempts })
			tracer.Close()
			if n := s.requests(); n != tt.attempts {
				t.Errorf("%d attempts, want %d", n, tt.attempts)
			}
			if log := logged.String(); (tt.logged == "") != (log == "") || !strings.Contains(log, tt.logged) || strings.Contains(log, "secret") {
				t.Errorf("the log has\n%s", log)
			}
		})
	}
}

// TestCollectorTextNotLogged: text of a collector, or of a proxy before it, is logged in small part or not at all.
func TestCollectorTextNotLogged(t *testing.T) {
	for name, answer := range map[string]string{
		"a reason":       "HTTP/1.1 400 secret\r\nContent-Length: 0\r\n\r\n",
		"a reason again": "HTTP/1.1 503 secret\r\nContent-Length: 0\r\n\r\n",
		"no answer":      "HTTP/1.1 " + strings.Repeat("xé", 2000) + "\r\n\r\n",
		"an address":     "HTTP/1.1 http://user:secret@proxy\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var logged journal
			tracer := open(t, Options{Traces: OTLP, Endpoint: "http://" + speaker(t, answer), Log: logged.log()})
			call(tracer, sampled, "")
			sandboxtest.Eventually(t, 20*time.Second, "a line", func() bool { return strings.Contains(logged.String(), "spans are not exported") })
			tracer.Close()
			if log := logged.String(); strings.Contains(log, "secret") || len(log) > 600 || strings.Contains(log, "\uFFFD") {
				t.Errorf("%d bytes: %s", len(log), log)
			}
		})
	}
}

// speaker answers each request with the same bytes.
func speaker(t *testing.T, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
					_, _ = io.WriteString(c, answer)
				}
			}()
		}
	}()
	return l.Addr().String()
}

// TestProxyPasswordNotInErrors: no error contains the password of a proxy, whatever fails.
func TestProxyPasswordNotInErrors(t *testing.T) {
	if os.Getenv("HTTP_PROXY") == "" { // net/http reads the environment once per process
		for _, url := range []string{"http://user:secret@127.0.0.1:1", "socks5://user:secret@127.0.0.1:1"} {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProxyPasswordNotInErrors$", "-test.v")
			cmd.Env = append(os.Environ(), "HTTP_PROXY="+url, "NO_PROXY=", "no_proxy=", "REQUEST_METHOD=")
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") || strings.Contains(string(out), "secret") {
				t.Errorf("%s: %v\n%s", url, err, out)
			}
		}
		return
	}
	c, err := (&Options{Endpoint: "http://otel.example.org", Getenv: func(string) string { return "" }}).collector()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.post(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("%v: not sent through the proxy", err)
	}
	if err := withoutUserInfo(errors.New(`proxyconnect: "http://user:secret@x"`)); strings.Contains(err, "secret") {
		t.Error(err)
	}
}

// FuzzRejected: rejected does not panic on any answer.
func FuzzRejected(f *testing.F) {
	for _, s := range []string{"", "\x0a\x06\x12\x02no\x08\x03", "\x0a\xff\xff\xff\xff\x0f", "\x08", "\x0a\x01\x08"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(_ *testing.T, answer []byte) { rejected(answer) })
}

func TestURL(t *testing.T) {
	const traces, all = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
	for _, tt := range []struct {
		configured string
		env        map[string]string
		want       string // "" means an error
	}{
		{"", nil, "http://localhost:4318/v1/traces"},
		{"http://127.0.0.1:9", nil, "http://127.0.0.1:9/v1/traces"},
		{"http://127.0.0.1:9/", nil, "http://127.0.0.1:9/v1/traces"},
		{"https://otel.example.org/in", nil, "https://otel.example.org/in/v1/traces"},
		{"https://otel.example.org/v1/traces", nil, "https://otel.example.org/v1/traces"},
		{"", map[string]string{all: "http://a:1"}, "http://a:1/v1/traces"},
		{"", map[string]string{all: "http://a:1", traces: "http://b:2/in"}, "http://b:2/in"},
		{"http://c:3", map[string]string{all: "http://a:1", traces: "http://b:2/in"}, "http://c:3/v1/traces"},
		{"", map[string]string{all: "a:1"}, ""},
		{"", map[string]string{all: "unix:///run/x"}, ""},
		{"", map[string]string{all: "http://secret@a"}, ""},
		{"", map[string]string{traces: "http://"}, ""},
		{"http://a b", nil, ""},
	} {
		u, err := (&Options{Endpoint: tt.configured, Getenv: func(name string) string { return tt.env[name] }}).url()
		switch {
		case err != nil && (tt.want != "" || strings.Contains(err.Error(), "secret")):
			t.Errorf("%q, %v: %v", tt.configured, tt.env, err)
		case err == nil && u.String() != tt.want:
			t.Errorf("%q, %v: %s, want %q", tt.configured, tt.env, u, tt.want)
		}
	}
}

// TestHeaders: the sources of headers, their precedence, and invalid ones.
func TestHeaders(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const traces, all = "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"
	for _, tt := range []struct {
		name, file string
		env        map[string]string
		want       string // NAME=VALUE of Authorization and X-Team; "" means none
		wrong      string // text of the error
	}{
		{"none", "", nil, "", ""},
		{"a file", file("good", "# for the collector\n\nAuthorization: Bearer secret:1\nx-team:  builds \n", 0o600), nil, "Bearer secret:1,builds", ""},
		{"a file before the environment", file("both", "X-Team: a", 0o640), map[string]string{all: "X-Team=b"}, ",a", ""},
		{"the environment", "", map[string]string{all: "Authorization=Bearer%20secret,x-team=b"}, "Bearer secret,b", ""},
		{"variable of traces", "", map[string]string{all: "x-team=b", traces: "x-team=c"}, ",c", ""},
		{"no file", filepath.Join(dir, "none"), nil, "", "no such file"},
		{"a directory", dir, nil, "", "not a regular file"},
		{"world-readable", file("open", "A: b", 0o644), nil, "", "chmod o-rwx"},
		{"no header", file("bad", "A: b\nBearer secret", 0o600), nil, "", "entry 2 is not a valid header"},
		{"invalid name", file("name", "A b: secret", 0o600), nil, "", "entry 1 is not a valid header"},
		{"a line in a line", "", map[string]string{all: "A=b%0d%0asecret"}, "", "entry 1 is not a valid header"},
		{"bad escapes", "", map[string]string{all: "A=%zzsecret"}, "", "entry 1 is not a valid header"},
		{"too long", file("long", strings.Repeat("# secret\n", 4000), 0o600), nil, "", "larger than 16384 bytes"},
	} {
		head, err := (&Options{HeadersFile: tt.file, Getenv: func(name string) string { return tt.env[name] }}).headers()
		switch {
		case err != nil:
			if tt.wrong == "" || !strings.Contains(err.Error(), tt.wrong) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", tt.name, err)
			}
		case tt.wrong != "":
			t.Errorf("%s: no error", tt.name)
		default:
			if got := strings.Trim(head.Get("Authorization")+","+head.Get("X-Team"), " "); got != tt.want && (tt.want != "" || len(head) > 0) {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			}
		}
	}
}

// TestHeadersOwner: headers from another user's file are not sent.
func TestHeadersOwner(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	path := filepath.Join(t.TempDir(), "headers")
	if err := errors.Join(os.WriteFile(path, []byte("A: b"), 0o600), os.Chown(path, 1234, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := readSecret(path); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
		t.Error(err)
	}
}

// TestHeadersNeedTLS: headers reach the collector, but are not sent over a network unencrypted.
func TestHeadersNeedTLS(t *testing.T) {
	path := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(path, []byte("Authorization: Bearer secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newSite(t, nil)
	tracer := open(t, Options{Traces: OTLP, Endpoint: s.url, HeadersFile: path})
	call(tracer, sampled, "")
	tracer.Close()
	if got := s.heads[0].Get("Authorization"); got != "Bearer secret" {
		t.Errorf("the collector has %q", got)
	}
	for url, good := range map[string]bool{
		"http://otel.example.org": false, "https://otel.example.org": true, "http://[::1]:4318": true, "http://LOCALHOST": true,
		"http://localhost.example.org": false, "http://10.0.0.1": false,
	} {
		if _, err := (&Options{Endpoint: url, HeadersFile: path, Getenv: os.Getenv}).collector(); (err == nil) != good {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestUploadStopsWithContext: a waiting export ends when its context is cancelled.
func TestUploadStopsWithContext(t *testing.T) {
	held := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // net/http notices that the client left only after the body was read
		close(held)
		<-r.Context().Done()
	}))
	defer server.Close()
	c, err := (&Options{Endpoint: server.URL, Getenv: func(string) string { return "" }}).collector()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-held
		cancel()
	}()
	if err := c.UploadTraces(ctx, []*tracepb.ResourceSpans{{}}); err == nil {
		t.Error("the spans were sent")
	}
	if names := []string{"localhost", "127.0.0.1", "::1"}; slices.ContainsFunc(names, func(s string) bool { return !loopback(s) }) {
		t.Error("a loopback name is not recognized")
	}
}
