package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"corral/mcp/tool"
)

// TestMetricsAccess: only a caller whose tools name metrics reads them, and they count its connection.
func TestMetricsAccess(t *testing.T) {
	callers := map[string]tool.Caller{
		"Bearer reader": {Principal: "token:reader", Tools: []string{MetricsTool}},
		"Bearer all":    {Principal: "token:all"},
		"Bearer some":   {Principal: "token:some", Tools: []string{"echo"}},
	}
	for _, served := range []bool{true, false} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		o := HTTPOptions{Authenticate: func(token string) (tool.Caller, bool) {
			c, ok := callers["Bearer "+token]
			return c, ok
		}}
		if served {
			o.Metrics = func(connections, sessions int) ([]byte, error) {
				if connections > 100 {
					return nil, errors.New("too many")
				}
				return fmt.Appendf(nil, "connected %t sessions %d\n", connections > 0, sessions), nil
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- New(Options{}).Serve(ctx, l, o) }()
		for _, row := range []struct {
			method, token, host string
			code                int
			body                string
		}{
			{http.MethodGet, "Bearer reader", "", 200, "connected true sessions 0\n"},
			{http.MethodHead, "Bearer reader", "", 200, ""},
			{http.MethodPost, "Bearer reader", "", 405, "Method Not Allowed\n"},
			{http.MethodGet, "", "", 401, "Unauthorized\n"},
			{http.MethodGet, "Bearer wrong", "", 401, "Unauthorized\n"},
			{http.MethodGet, "Bearer all", "", 403, "Forbidden\n"},
			{http.MethodGet, "Bearer some", "", 403, "Forbidden\n"},
			{http.MethodGet, "Bearer reader", "evil.example", 403, "Forbidden\n"},
		} {
			if !served {
				row.code, row.body = 404, "404 page not found\n"
			}
			r, err := http.NewRequestWithContext(t.Context(), row.method, "http://"+l.Addr().String()+MetricsPath, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = row.host
			if row.token != "" {
				r.Header.Set("Authorization", row.token)
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			if answer.StatusCode != row.code || row.method != http.MethodHead && string(body) != row.body {
				t.Errorf("%s, %q: %d %q, want %d %q", row.method, row.token, answer.StatusCode, body, row.code, row.body)
			}
			if media := answer.Header.Get("Content-Type"); row.code == 200 && media != metricsType {
				t.Errorf("Content-Type: %s", media)
			}
			if head := answer.Header.Get("WWW-Authenticate"); (head != "") != (row.code == 401) {
				t.Errorf("%d with WWW-Authenticate %q", row.code, head)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
