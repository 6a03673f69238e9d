package telemetry

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
		}, 1, "rejected 3 of a batch"},
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
}
