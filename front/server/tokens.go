package server

import (
	"crypto/sha256"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"corral/internal/config"
	"corral/internal/gate"
)

// tokenInterval is how long a change of a token may go unnoticed: half of the second that is promised.
const tokenInterval = 500 * time.Millisecond

// tokens are the principals of a running server. Their entries are read again while the server runs, so that a token that was
// revoked, or made, counts without a restart.
//
// They are read when a request comes and the last reading is older than tokenInterval, whatever the number of requests: an
// idle server reads nothing. That is simpler than inotify, which reports nothing about a directory that does not exist yet,
// a queue that overflowed, or files on NFS.
type tokens struct {
	read func() (config.Config, error)
	log  *slog.Logger
	// bound sets the bounds of principals, before their tokens are accepted; nil is not called.
	bound func(list config.Principals)

	mu    sync.Mutex
	now   config.Principals // guarded by mu
	after time.Time         // guarded by mu: the time of the last reading
	fault string            // guarded by mu: why the files could not be read then
}

// tokensOf returns the principals of a server's configuration, which it reads again from the same files.
func (s *serving) tokensOf(b *Backend) *tokens {
	t := &tokens{
		now: b.Config.Principals, after: time.Now(), log: b.Log, bound: b.Bound,
		read: func() (config.Config, error) { return config.LoadFront(s.sources()...) },
	}
	s.principals = t.current
	return t
}

// authenticate returns the principal of a token that is valid now.
func (t *tokens) authenticate(token string) (config.Principal, bool) {
	return t.current().Authenticate(token, time.Now())
}

// holds returns the principal of somebody who has logged in by a token, if that is valid now.
func (t *tokens) holds(by gate.Holder) (config.Principal, bool) {
	p, ok := t.current().ByHash(by.Token, time.Now())
	return p, ok && tokenPrincipal(p) == by.Principal
}

// holder returns who asks for a link by a request that was authenticated.
func holder(principal string, r *http.Request) gate.Holder {
	token, _ := gate.Bearer(r)
	return gate.Holder{Principal: principal, Token: sha256.Sum256([]byte(token))}
}

// current returns the principals, read at most tokenInterval ago. While the files have a mistake, those before it apply: an
// operator who edits a file does not lock every client out. corral token writes files as a whole, so it never leaves one that
// is faulty.
func (t *tokens) current() config.Principals {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.after) < tokenInterval {
		return t.now
	}
	if err := t.again(); err != nil {
		if fault := err.Error(); fault != t.fault {
			t.fault = fault
			t.log.Error("the tokens could not be read again: those read before apply", "error", err)
		}
	}
	return t.now
}

// set replaces the principals by those of a configuration that was read now.
func (t *tokens) set(p config.Principals) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.after = time.Now()
	t.take(p)
}

// again reads the files, and takes their principals unless they have a mistake. The caller holds t.mu.
func (t *tokens) again() error {
	c, err := t.read()
	t.after = time.Now()
	if err == nil {
		t.take(c.Principals)
	}
	return err
}

// take replaces the principals. The caller holds t.mu.
func (t *tokens) take(p config.Principals) {
	if t.bound != nil {
		t.bound(p)
	}
	t.now, t.fault = p, ""
}
