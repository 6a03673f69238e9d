package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"corral/job"
)

const (
	// closeTime is how long an orderly end may take before the session is left to the supervisor.
	closeTime = 10 * time.Second
	// atOnce is how many sessions are closed at once.
	atOnce = 8
)

// leave takes a user from s. gone says that the supervisor does not know it any more.
func (k *Manager) leave(s *entry, gone bool) {
	k.mu.Lock()
	s.users--
	if isClosed(s.opened) && s.err == nil {
		s.anew = false
	}
	if gone && !s.ended {
		s.lost = true
		k.forget(s)
		k.remember(s.key)
	}
	k.armIdleTimer(s)
	mine := k.claim(s)
	k.mu.Unlock()
	if mine {
		k.end(s)
	}
}

// claim says whether s is to be closed now, by the caller, who is told so once. It is called with mu held.
func (k *Manager) claim(s *entry) bool {
	if !s.ended || s.closing || !isClosed(s.opened) || s.err != nil || s.users > 0 && !k.closed {
		return false
	}
	s.closing = true
	return true
}

// armIdleTimer starts the time of a session that nobody uses. It is called with mu held.
func (k *Manager) armIdleTimer(s *entry) {
	if d := k.idle(s.key); d > 0 && s.users == 0 && !s.ended && s.idle == nil && isClosed(s.opened) {
		turn := s.turn
		s.idle = k.o.After(d, func() { k.expire(s, turn) })
	}
}

// expire ends a session that was not used since.
func (k *Manager) expire(s *entry, turn uint64) {
	k.mu.Lock()
	if s.ended || s.users > 0 || s.turn != turn || k.closed {
		k.mu.Unlock()
		return
	}
	k.forget(s)
	k.remember(s.key)
	s.closing = true
	k.work.Add(1)
	k.mu.Unlock()
	defer k.work.Done()
	k.end(s)
}

// forget takes s out of the table. It is called with mu held.
func (k *Manager) forget(s *entry) {
	s.ended = true
	if k.all[s.key] == s {
		delete(k.all, s.key)
	}
	if s.idle != nil {
		s.idle()
		s.idle = nil
	}
}

// remember has the client told, if it comes back, that its session ended. It is called with mu held.
func (k *Manager) remember(id key) {
	if len(k.former) >= maxFormer {
		clear(k.former)
	}
	k.former[id] = ""
}

// end closes a session that the caller has claimed. What is kept of it can be used again by who comes back.
func (k *Manager) end(s *entry) {
	layer := k.closeSession(s)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.count--
	// A root file system is not put aside: only what was changed in the repository is kept of it.
	if before, ended := k.former[s.key]; ended && before == "" && !s.lost && !s.root {
		k.former[s.key] = layer
	}
}

// closeSession returns the layer that was kept, "" for none.
func (k *Manager) closeSession(s *entry) string {
	// Not the Manager's context: an orderly end is what Close is for.
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	keep, err := k.o.Sessions.CloseSession(ctx, s.id, s.workspace == job.Overlay)
	var refusal *job.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Step == "session": // it has ended already
		if s.again { // and lies where it lay
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

// End ends the sessions of one client session of a principal, and returns when they are closed. One that is in use is
// closed by its last user.
func (k *Manager) End(principal, client string) {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return
	}
	k.work.Add(1)
	ended := k.take(func(id key) bool { return id.principal == principal && id.client == client })
	for id := range k.former {
		if id.principal == principal && id.client == client {
			delete(k.former, id)
		}
	}
	k.mu.Unlock()
	defer k.work.Done()
	k.endAll(ended)
}

// take takes those that match out of the table, and returns those to be closed by the caller. It is called with mu held.
func (k *Manager) take(match func(key) bool) []*entry {
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
	places := make(chan struct{}, atOnce)
	for _, s := range list {
		places <- struct{}{}
		work.Go(func() {
			k.end(s)
			<-places
		})
	}
	work.Wait()
}

// Close ends all sessions, and every job in them, in order: it returns when they are closed, or have not closed in time.
// No session is provided afterwards.
func (k *Manager) Close() {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		k.work.Wait()
		return
	}
	k.closed = true
	ended := k.take(func(key) bool { return true })
	k.mu.Unlock()
	k.stop()
	k.endAll(ended)
	k.work.Wait()
}
