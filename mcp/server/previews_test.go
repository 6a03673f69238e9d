package server

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"corral/mcp/tool"
)

// TestPreviewsAccess: links are made for callers with a token, by POST, and not for pages of other origins, to which those of previews
// belong.
func TestPreviewsAccess(t *testing.T) {
	for _, served := range []bool{true, false} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		o := HTTPOptions{Authenticate: func(token string) (tool.Caller, bool) {
			return tool.Caller{Principal: "token:me"}, token == "mine"
		}}
		if served {
			o.Previews = func(principal string, r *http.Request) (int, []byte) {
				return http.StatusOK, []byte(principal + " " + r.URL.RawQuery)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- New(Options{}).Serve(ctx, l, o) }()
		for _, row := range []struct {
			method, token, host, origin string
			code                        int
			body                        string
		}{
			{"POST", "Bearer mine", "", "", 200, "token:me port=1"},
			{"POST", "Bearer mine", "", "http://localhost:3000", 200, "token:me port=1"},
			{"POST", "Bearer wrong", "", "", 401, "Unauthorized\n"},
			{"POST", "", "", "", 401, "Unauthorized\n"},
			{"GET", "Bearer mine", "", "", 405, "Method Not Allowed\n"},
			{"POST", "Bearer mine", "evil.example", "", 403, "Forbidden\n"},
			{"POST", "Bearer mine", "p8000-0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a.localhost", "", 403, "Forbidden\n"},
			{"POST", "Bearer mine", "", "http://p8000-0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a.localhost:7071", 403, "Forbidden\n"},
		} {
			if !served {
				row.code, row.body = 404, "404 page not found\n"
			}
			r, err := http.NewRequestWithContext(t.Context(), row.method, "http://"+l.Addr().String()+PreviewsPath+"?port=1", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = row.host
			for name, value := range map[string]string{"Authorization": row.token, "Origin": row.origin} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			got, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(got.Body)
			got.Body.Close()
			if err != nil || got.StatusCode != row.code || string(b) != row.body || row.code < 404 && got.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("served %v, %+v: %s %q %v", served, row, got.Status, b, err)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
