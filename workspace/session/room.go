package session

import (
	"context"
	"errors"
	"syscall"

	"corral/job"
)

// openInRoom opens s at the supervisor. As long as the disk has no room for its layer, it ends a session that nobody uses, and
// tries again. All principals are one user for the supervisor, which has a share of the disk for each user: without this, one
// principal could lock out the others by sessions that it leaves idle.
//
// Changes that are kept stay on the disk. If the room that the end of such a session has made is not enough, that of others would
// hardly be: they go on, and the client that comes next is refused. The one that has ended gets its files again when there is room.
func (k *Manager) openInRoom(ctx context.Context, s *entry) (job.Session, error) {
	for kept := false; ; {
		opened, err := k.o.Sessions.OpenSession(ctx, k.spec(s))
		var refusal *job.Refusal
		if kept || !errors.As(err, &refusal) || refusal.Errno != int(syscall.ENOSPC) {
			return opened, err
		}
		other := k.makeRoom(s)
		if other == nil {
			return opened, err
		}
		kept = k.end(other) != ""
	}
}

// makeRoom removes a session that gives way to s from the table, and returns it, or nil. The caller must end it.
func (k *Manager) makeRoom(s *entry) *entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil
	}
	found := k.spare(s, s.principal, false)
	if found != nil {
		k.giveUp(found, job.SessionForRoom)
	}
	return found
}

// endForRoom ends a session that gives way to s, and reports whether there was one.
func (k *Manager) endForRoom(s *entry) bool {
	other := k.makeRoom(s)
	if other != nil {
		k.end(other)
	}
	return other != nil
}

// giveUp removes an idle session from the table. The caller must end it. mu must be held.
func (k *Manager) giveUp(s *entry, why job.SessionEnd) {
	k.forget(s)
	k.remember(s, why)
	s.closing = true
}

// spare returns an idle session that gives way to s, or nil; s is nil if it is not in the table yet. It is the least recently used one
// of the principal with most sessions: that of s, or another that has more, unless only its own may be taken. mu must be held.
func (k *Manager) spare(s *entry, principal string, own bool) (found *entry) {
	has := map[string]int{}
	for _, other := range k.all {
		has[other.principal]++
	}
	mine := has[principal]
	if s == nil {
		mine++
	}
	for _, other := range k.all {
		idle := other != s && other.users == 0 && isClosed(other.opened) && other.err == nil
		if !idle || other.principal != principal && (own || has[other.principal] <= mine) {
			continue
		}
		more := 0
		if found != nil {
			more = has[other.principal] - has[found.principal]
		}
		if found == nil || more > 0 || more == 0 && other.turn < found.turn {
			found = other
		}
	}
	return found
}
