package server

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
	"corral/mcp/tool"
)

// TestRevoked: a call that runs and a stream that is open end when their token is revoked, or their principal may use less;
// those of another token go on.
func TestRevoked(t *testing.T) {
	for name, change := range map[string]func(who map[string]tool.Caller){
		"revoked": func(who map[string]tool.Caller) { delete(who, "a") },
		"fewer":   func(who map[string]tool.Caller) { who["a"] = tool.Caller{Principal: "token:a", Repos: []string{"x"}} },
		"other tool": func(who map[string]tool.Caller) {
			who["a"] = tool.Caller{Principal: "token:a", Tools: []string{"gated"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGated()
			s := newHTTPSite(t, New(Options{Tools: []tool.Tool{g}}), HTTPOptions{})
			var mu sync.Mutex
			who := map[string]tool.Caller{"a": {Principal: "token:a"}, "c": {Principal: "token:c"}}
			s.web.authenticate = func(token string) (tool.Caller, bool) {
				mu.Lock()
				defer mu.Unlock()
				c, ok := who[token]
				return c, ok
			}
			id, other := s.open(), s.open("Authorization", "Bearer c")
			stream := func(id, token string) io.ReadCloser {
				response, err := http.DefaultClient.Do(s.request(t.Context(), "GET", "", "Mcp-Session-Id", id, "Authorization", "Bearer "+token))
				if err != nil || response.StatusCode != http.StatusOK {
					t.Fatalf("%v, %v", response, err)
				}
				t.Cleanup(func() { _ = response.Body.Close() })
				return response.Body
			}
			revoked, stays := stream(id, "a"), stream(other, "c")
			call := make(chan int, 1)
			go func() {
				response, _ := s.send("POST", toCall("1", "gated", "{}"), "Mcp-Session-Id", id, "Accept", "application/json")
				call <- response.StatusCode
			}()
			g.wait(t, g.began, "begun")
			mu.Lock()
			change(who)
			mu.Unlock()
			g.wait(t, g.ended, "cancelled")
			if status := <-call; status != http.StatusUnauthorized {
				t.Errorf("the call: status %d", status)
			}
			if rest, err := io.ReadAll(revoked); err != nil || strings.Contains(string(rest), "data") {
				t.Errorf("the stream: %q, %v", rest, err)
			}
			ended := make(chan struct{})
			go func() {
				_, _ = io.ReadAll(stays)
				close(ended)
			}()
			select {
			case <-ended:
				t.Error("another token's stream ended")
			case <-time.After(sandboxtest.Slow(2 * recheckInterval)): // it would have ended by then
			}
		})
	}
}
