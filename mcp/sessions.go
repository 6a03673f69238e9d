package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"sync"
	"time"
)

// errSessionEnded is the cause of the end of what belongs to a session.
var errSessionEnded = errors.New("the session ended")

// A session is one client's, from initialize to DELETE, or until it has been idle for long. Up to 2025-11-25 there are
// sessions; since 2026-07-28 each request stands for itself.
type session struct {
	id        string
	principal string
	version   string
	calls     inflight
	ctx       context.Context // ends with the session
	end       context.CancelCauseFunc

	// Guarded by the mu of sessions.
	busy   int // requests and streams that are open
	stream bool
	used   time.Time
	timer  *time.Timer // ends it when it is idle
}

// key is what the session is called where others may read it: its id is half a password.
func (s *session) key() string { return digest(s.id) }

// digest is 128 bits of a hash.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// sessions are those of one HTTP server.
type sessions struct {
	idle  time.Duration
	max   int                             // of one principal
	ended func(principal, session string) // is called without mu; see Options

	mu  sync.Mutex
	all map[string]*session // guarded by mu
}

// open makes a session for a principal. When it has too many, the one that has been idle for longest ends; when none is
// idle, ok is false.
func (t *sessions) open(principal, version string) (s *session, ok bool) {
	s, oldest := t.add(principal, version)
	if oldest != nil {
		t.ended(oldest.principal, oldest.key())
	}
	return s, s != nil
}

// add returns the one that was ended for it, too.
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
	s = &session{id: randomHex(32), principal: principal, version: version, used: time.Now()}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.timer = time.AfterFunc(t.idle, func() { t.expire(s) })
	t.all[s.id] = s
	return s, oldest
}

// enter returns a principal's session, which does not end for being idle until leave. Another's is none.
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

// listen takes the session's one stream, and reports whether it was free.
func (t *sessions) listen(s *session) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	free := !s.stream
	s.stream = true
	return free
}

func (t *sessions) hear(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.stream = false
}

// remove ends a session and what is under way in it.
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

// end ends a session if it is there and due, which is asked with mu held. It returns whether it has.
func (t *sessions) end(s *session, due func() bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[s.id] != s || !due() {
		return false
	}
	t.drop(s)
	return true
}

// drop is called with mu held. Who calls it tells ended.
func (t *sessions) drop(s *session) {
	delete(t.all, s.id)
	s.timer.Stop()
	s.calls.cancelAll(errSessionEnded)
	s.end(errSessionEnded)
}
