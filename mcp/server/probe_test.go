package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"corral/internal/test/mcptest"
	"corral/mcp/tool"
)

// TestProbes: without a token, anybody learns whether the server answers and can serve, and no more than that; every other
// path but the server's own does not exist.
func TestProbes(t *testing.T) {
	var down atomic.Bool
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- New(Options{}).Serve(ctx, l, HTTPOptions{
			Authenticate: func(string) (tool.Caller, bool) { return tool.Caller{}, false },
			Ready: func() error {
				if down.Load() {
					return errors.New("secret reason")
				}
				return nil
			},
		})
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	ask := func(method, path string) (int, string) {
		t.Helper()
		return mcptest.Fetch(t, method, "http://"+l.Addr().String()+path, "")
	}

	for _, tt := range []struct {
		method, path string
		down         bool
		code         int
		body         string
	}{
		{http.MethodGet, HealthPath, false, 200, "ok\n"},
		{http.MethodHead, HealthPath, false, 200, ""},
		{http.MethodGet, ReadyPath, false, 200, "ok\n"},
		{http.MethodGet, HealthPath, true, 200, "ok\n"},
		{http.MethodGet, ReadyPath, true, 503, "not ready\n"},
		{http.MethodPost, ReadyPath, false, 405, ""},
		{http.MethodGet, "/", false, 404, "404 page not found\n"},
		{http.MethodGet, HealthPath + "/x", false, 404, "404 page not found\n"},
	} {
		if down.Swap(tt.down) != tt.down {
			for range 200 { // an answer holds for a while
				if code, _ := ask(http.MethodGet, ReadyPath); (code == http.StatusOK) != tt.down {
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
		if code, body := ask(tt.method, tt.path); code != tt.code || body != tt.body || strings.Contains(body, "secret") {
			t.Errorf("%s %s: %d %q, want %d %q", tt.method, tt.path, code, body, tt.code, tt.body)
		}
	}
	if code, _ := ask(http.MethodPost, Path); code != http.StatusUnauthorized {
		t.Errorf("a call without a token: %d", code)
	}
}
