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
func (k *Manager) openInRoom(ctx context.Context, s *entry) (job.Session, error) {
	for {
		opened, err := k.o.Sessions.OpenSession(ctx, k.spec(s))
		var refusal *job.Refusal
		if !errors.As(err, &refusal) || refusal.Errno != int(syscall.ENOSPC) {
			return opened, err
		}
		other := k.spare(s)
		if other == nil {
			return opened, err
		}
		k.end(other)
	}
}

// spare returns an idle session that gives way to s, or nil, and removes it from the table; the caller must end it. It is the
// least recently used one of the principal with most sessions: that of s, or another that has more than that of s.
func (k *Manager) spare(s *entry) *entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil
	}
	has := map[string]int{}
	for _, other := range k.all {
		has[other.principal]++
	}
	var found *entry
	for _, other := range k.all {
		idle := other != s && other.users == 0 && isClosed(other.opened) && other.err == nil
		if !idle || other.principal != s.principal && has[other.principal] <= has[s.principal] {
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
	if found != nil {
		k.forget(found)
		k.remember(found, job.SessionForRoom)
		found.closing = true
	}
	return found
}
