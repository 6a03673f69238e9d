package server

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
	"corral/mcp/tool"
)

// ends records calls of Options.Ended.
type ends struct {
	mu   sync.Mutex
	list []string // guarded by mu
}

func (e *ends) note(principal, session string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, principal+" "+session)
}

func (e *ends) are(want ...string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Equal(e.list, want)
}

// TestEndedStdio: the end of the input ends the session, once, after its calls.
func TestEndedStdio(t *testing.T) {
	var e ends
	s := New(Options{Tools: testTools(), Ended: e.note})
	k := dial(t, s, tool.Caller{Principal: "user:ada", Session: "s1"})
	k.ask(toCall("1", "echo", "{}"))
	if !e.are() {
		t.Errorf("ended early: %q", e.list)
	}
	_ = k.in.Close()
	sandboxtest.Eventually(t, 5*time.Second, "the session has not ended", func() bool { return e.are("user:ada s1") })
}

// TestEndedHTTP: DELETE, expiry and eviction each end a session once; requests of others end none.
func TestEndedHTTP(t *testing.T) {
	var e ends
	s := newHTTPSite(t, New(Options{Tools: testTools(), Ended: e.note}), HTTPOptions{MaxSessions: 2})
	key := func(id string) string { return s.web.principalOf(id) + " " + digest(id) }
	one, two := s.open(), s.open()
	first, second := key(one), key(two)
	if response, _ := s.send("DELETE", "", "Mcp-Session-Id", one, "Authorization", "Bearer b"); response.StatusCode != http.StatusNotFound || !e.are() {
		t.Errorf("DELETE by another: %d, %q", response.StatusCode, e.list)
	}
	for range 2 {
		s.send("DELETE", "", "Mcp-Session-Id", one)
	}
	if !e.are(first) {
		t.Errorf("after DELETE: %q", e.list)
	}
	three := s.open()
	s.open() // evicts two
	if !e.are(first, second) {
		t.Errorf("after one too many: %q", e.list)
	}
	third := key(three)
	s.web.sessions.mu.Lock()
	s.web.sessions.idle = time.Nanosecond
	idle := s.web.sessions.all[three]
	s.web.sessions.mu.Unlock()
	s.web.sessions.expire(idle)
	s.web.sessions.expire(idle)
	if !e.are(first, second, third) {
		t.Errorf("after being idle: %q", e.list)
	}
}

func (h *web) principalOf(id string) string {
	h.sessions.mu.Lock()
	defer h.sessions.mu.Unlock()
	return h.sessions.all[id].principal
}
