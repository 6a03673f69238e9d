package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"sync"
	"time"

	"corral/internal/calls"
	"corral/mcp/tool"
)

// errSessionEnded is the cause of the contexts of a session that has ended.
var errSessionEnded = errors.New("the session ended")

// A session is a client session over HTTP: from initialize to DELETE, or until it expires. Protocol versions up to 2025-11-25
// have sessions; since 2026-07-28 requests are independent of each other.
type session struct {
	id        string
	principal string
	version   string
	calls     inflight
	defaults  tool.Defaults
	ctx       context.Context // ends with the session
	end       context.CancelCauseFunc

	// Guarded by sessions.mu.
	busy   int // open requests and streams
	stream bool
	used   time.Time
	timer  *time.Timer // expires the session
}

// key returns an identifier of the session for logs and jobs. The id itself is a credential, together with the token.
func (s *session) key() string { return digest(s.id) }

// digest returns 128 bits of SHA-256, in hexadecimal.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// sessions holds the sessions of one HTTP server.
type sessions struct {
	idle  time.Duration
	max   int                             // of one principal
	ended func(principal, session string) // called without holding mu; see Options
	log   *slog.Logger

	mu  sync.Mutex
	all map[string]*session // guarded by mu
}

// open opens a session for a principal. At the maximum, it ends the principal's session that has been idle longest; ok
// is false if none is idle.
func (t *sessions) open(principal, version string) (s *session, ok bool) {
	s, oldest := t.add(principal, version)
	if oldest != nil {
		t.log.Warn("the session of an MCP client is ended, because its user or token has opened more than it may have at once",
			"client", oldest.key(), "principal", principal, "maximum", t.max, "idle", time.Since(oldest.used).Round(time.Second))
		t.ended(oldest.principal, oldest.key())
	}
	return s, s != nil
}

// add adds a session, and returns it with the session that it removed, if any.
func (t *sessions) add(principal, version string) (s, oldest *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	count := 0
	for _, other := range t.all {
		if other.principal != principal {
			continue
		}
		count++
		if other.busy == 0 && (oldest == nil || other.used.Before(oldest.used)) {
			oldest = other
		}
	}
	switch {
	case count < t.max:
		oldest = nil
	case oldest == nil:
		return nil, nil
	default:
		t.drop(oldest)
	}
	s = &session{id: calls.RandomHex(32), principal: principal, version: version, used: time.Now()}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.timer = time.AfterFunc(t.idle, func() { t.expire(s) })
	t.all[s.id] = s
	return s, oldest
}

// count returns the number of open sessions.
func (t *sessions) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all)
}

// enter returns a session of the principal and keeps it from expiring until leave is called.
func (t *sessions) enter(id, principal string) (*session, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.all[id]
	if s == nil || s.principal != principal {
		return nil, false
	}
	s.busy++
	s.timer.Stop()
	return s, true
}

func (t *sessions) leave(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.busy--
	s.used = time.Now()
	if s.busy == 0 && s.ctx.Err() == nil {
		s.timer.Reset(t.idle)
	}
}

// acquireStream reserves the session's only stream, and reports whether it was free.
func (t *sessions) acquireStream(s *session) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	free := !s.stream
	s.stream = true
	return free
}

func (t *sessions) releaseStream(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.stream = false
}

// remove ends a session and cancels its requests.
func (t *sessions) remove(s *session) {
	if t.end(s, func() bool { return true }) {
		t.ended(s.principal, s.key())
	}
}

func (t *sessions) expire(s *session) {
	if t.end(s, func() bool { return s.busy == 0 && time.Since(s.used) >= t.idle }) {
		t.ended(s.principal, s.key())
	}
}

// end removes a session if it is still open and due returns true. due is called with mu held. It reports
// whether it removed the session.
func (t *sessions) end(s *session, due func() bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[s.id] != s || !due() {
		return false
	}
	t.drop(s)
	return true
}

// drop removes a session. The caller holds mu, and calls ended after unlocking it.
func (t *sessions) drop(s *session) {
	delete(t.all, s.id)
	s.timer.Stop()
	s.calls.cancelAll(errSessionEnded)
	s.end(errSessionEnded)
}
