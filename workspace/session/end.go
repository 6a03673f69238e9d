package session

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"corral/job"
)

const (
	// closeTime is the timeout of closing a session in order; afterwards it is left to the supervisor.
	closeTime = 10 * time.Second
	// atOnce is the maximum number of sessions closed concurrently.
	atOnce = 8
)

// leave removes a user from s. gone reports that the supervisor no longer has the session.
func (k *Manager) leave(s *entry, gone bool) {
	k.mu.Lock()
	s.users--
	if isClosed(s.opened) && s.err == nil {
		s.replaced = ""
	}
	if gone && !s.ended {
		s.lost = true
		k.forget(s)
		k.remember(s, job.SessionGone)
	}
	k.armIdleTimer(s)
	mine := k.claim(s)
	k.mu.Unlock()
	if mine {
		k.end(s)
	}
}

// claim reports whether the caller must close s now. It returns true to one caller only. mu must be held.
func (k *Manager) claim(s *entry) bool {
	if !s.ended || s.closing || !isClosed(s.opened) || s.err != nil || s.users > 0 && !k.closed {
		return false
	}
	s.closing = true
	return true
}

// armIdleTimer starts the idle timer of a session that nobody uses. mu must be held.
func (k *Manager) armIdleTimer(s *entry) {
	if d := k.idle(s.key); d > 0 && s.users == 0 && !s.ended && s.idle == nil && isClosed(s.opened) {
		turn := s.turn
		s.idle = time.AfterFunc(d, func() { k.expire(s, turn) })
	}
}

// expire ends a session that has been idle since its turn.
func (k *Manager) expire(s *entry, turn uint64) {
	k.mu.Lock()
	if s.ended || s.users > 0 || s.turn != turn || k.closed {
		k.mu.Unlock()
		return
	}
	k.forget(s)
	k.remember(s, job.SessionExpired)
	s.closing = true
	k.work.Add(1)
	k.mu.Unlock()
	defer k.work.Done()
	k.end(s)
}

// forget removes s from the table. mu must be held.
func (k *Manager) forget(s *entry) {
	s.ended = true
	if k.all[s.key] == s {
		delete(k.all, s.key)
	}
	if s.idle != nil {
		s.idle.Stop()
		s.idle = nil
	}
}

// remember records why a client's session ends, so that its next Lease says so. mu must be held.
func (k *Manager) remember(s *entry, why job.SessionEnd) {
	if len(k.former) >= maxFormer {
		clear(k.former)
	}
	k.former[s.key] = former{why: why}
	level := slog.LevelInfo
	if why == job.SessionForRoom {
		level = slog.LevelWarn
	}
	k.o.Log.Log(context.Background(), level, "a client's session is ended", "session", s.id, "repo", s.repo, "principal", s.principal,
		"reason", string(why), "why", why.String())
}

// end closes a session that the caller has claimed, and returns its layer if that is kept. The client's next session reuses it.
func (k *Manager) end(s *entry) (layer string) {
	layer = k.closeSession(s)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.count--
	if layer != "" {
		k.noteKept(s.principal, layer)
	}
	// A root file system is not reused: only the changes in the repository are kept of it.
	if before, ended := k.former[s.key]; ended && before.layer == "" && !s.lost && !s.root {
		k.former[s.key] = former{layer, before.why}
	}
	return layer
}

// closeSession closes s at the supervisor and returns the layer that was kept, or "".
func (k *Manager) closeSession(s *entry) string {
	// Not the Manager's context, which Close cancels: closing in order is the purpose of Close.
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	keep, err := k.o.Sessions.CloseSession(ctx, s.id, s.workspace == job.Overlay)
	var refusal *job.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Step == "session": // it has already ended
		if s.again { // its layer is still kept
			return s.id
		}
	case err != nil:
		k.o.Log.Warn("a session was not closed", "session", s.id, "repo", s.repo, "error", err)
	case keep:
		k.o.Log.Info("changes are kept: corral changes shows them", "changes", s.id, "repo", s.repo, "principal", s.principal)
		return s.id
	}
	return ""
}

// End ends the sessions of one client session of a principal, and returns when they are closed. A session in use is
// closed by its last user.
func (k *Manager) End(principal, client string) {
	k.endMatching(func(id key) bool { return id.principal == principal && id.client == client })
}

// Reset is End for the sessions in one repository, given by its path, except those with a root file system of their own.
// The client's next job there gets a new session; changes of the old one are kept for review, as at any end.
func (k *Manager) Reset(principal, client, repo string) {
	k.endMatching(func(id key) bool {
		return id.principal == principal && id.client == client && id.repo == repo && !id.root
	})
}

// Retire ends the sessions in a repository that is not served any more, given by its path, and returns their number. Sessions in
// use are closed by their last user. Changes are kept for review, as when a session has been idle: if the repository is served
// again, its clients get them back.
func (k *Manager) Retire(repo string) int {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return 0
	}
	k.work.Add(1)
	n, in := 0, func(id key) bool { return id.repo == repo }
	for id, s := range k.all {
		if in(id) {
			n++
			k.remember(s, job.SessionRetired)
		}
	}
	ended := k.removeMatching(in)
	k.mu.Unlock()
	defer k.work.Done()
	k.endAll(ended)
	return n
}

// endMatching ends the matching sessions, and forgets those that have ended before: no later session continues them.
func (k *Manager) endMatching(match func(key) bool) {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return
	}
	k.work.Add(1)
	ended := k.removeMatching(match)
	for id := range k.former {
		if match(id) {
			delete(k.former, id)
		}
	}
	k.mu.Unlock()
	defer k.work.Done()
	k.endAll(ended)
}

// removeMatching removes the matching sessions from the table, and returns those that the caller must close. mu must be held.
func (k *Manager) removeMatching(match func(key) bool) []*entry {
	var mine []*entry
	for id, s := range k.all {
		if !match(id) {
			continue
		}
		k.forget(s)
		if k.claim(s) {
			mine = append(mine, s)
		}
	}
	return mine
}

func (k *Manager) endAll(list []*entry) {
	var work sync.WaitGroup
	tokens := make(chan struct{}, atOnce)
	for _, s := range list {
		tokens <- struct{}{}
		work.Go(func() {
			k.end(s)
			<-tokens
		})
	}
	work.Wait()
}

// Close ends all sessions and every job in them. It returns when they are closed or closing has timed out. Acquire
// fails afterwards.
func (k *Manager) Close() {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		k.work.Wait()
		return
	}
	k.closed = true
	ended := k.removeMatching(func(key) bool { return true })
	k.mu.Unlock()
	k.stop()
	k.endAll(ended)
	k.work.Wait()
}
