package session

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// limit makes a host refuse a session as soon as so many are open.
func (h *host) limit(sessions int) *job.Refusal {
	none := &job.Refusal{Step: "session", Errno: int(syscall.ENOSPC), Message: "no room for a layer"}
	h.full = func(open int) error {
		if open >= sessions {
			return none
		}
		return nil
	}
	return none
}

// TestRoom: sessions that one principal leaves idle give way to those of others, and to its own; those in use do not, and
// neither do those of a principal that has no more than the one that asks.
func TestRoom(t *testing.T) {
	sandboxtest.Leaks(t)
	h := newHost()
	none := h.limit(4)
	k := h.manager(t, Options{})
	of := func(principal string, client int) *job.Request {
		return &job.Request{Principal: principal, Session: fmt.Sprint(client), Share: true}
	}
	for n := range 4 {
		use(t, k, of("a", n), direct)
	}
	use(t, k, of("a", 0), direct) // s2 is the least recently used
	use(t, k, of("b", 0), direct) // s5
	use(t, k, of("a", 4), direct) // s6
	if got := h.ended(); !slices.Equal(got, []string{"s2 false", "s3 false"}) {
		t.Errorf("closed %q", got)
	}
	if lease := acquire(t, k, of("a", 1), direct); lease.Replaced != job.SessionForRoom { // s7 instead of s4
		t.Errorf("a client is told that its session has ended for the reason %q", lease.Replaced)
	} else {
		lease.Return(false)
	}
	use(t, k, of("b", 1), direct) // s8 instead of s1: a has three
	lease := acquire(t, k, of("b", 1), direct)
	also := acquire(t, k, of("b", 0), direct)
	if _, err := k.Acquire(t.Context(), of("c", 0), direct); err != nil { // s9 instead of s6: a and b have two, those of b are busy
		t.Error(err)
	}
	before := h.ended()
	if _, err := k.Acquire(t.Context(), of("b", 2), direct); !errors.Is(err, none) { // b has most, and is busy
		t.Errorf("%v", err)
	}
	lease.Return(false)
	also.Return(false)
	if got := h.ended(); !slices.Equal(got, before) || !slices.Equal(got[2:], []string{"s4 false", "s1 false", "s6 false"}) {
		t.Errorf("closed %q, before %q", got, before)
	}
}

// TestRoomStorm: however many clients want more than there is room for, each gets a session or the refusal, and no count is lost.
func TestRoomStorm(t *testing.T) {
	sandboxtest.Leaks(t)
	h := newHost()
	_ = h.limit(3)
	k := h.manager(t, Options{})
	var work sync.WaitGroup
	for n := range 40 {
		work.Go(func() {
			r := &job.Request{Principal: fmt.Sprint("p", n%4), Session: fmt.Sprint(n)}
			if lease, err := k.Acquire(t.Context(), r, direct); err == nil {
				lease.Return(false)
			}
		})
	}
	work.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.count != len(k.all) || k.count > 3 {
		t.Errorf("%d are counted, %d are open", k.count, len(k.all))
	}
}

// TestRoomKept: changes stay on the disk when their session ends. So for a client that cannot be served, at most one other loses its
// session, and gets it again later.
func TestRoomKept(t *testing.T) {
	sandboxtest.Leaks(t)
	h := newHost()
	h.changed = true
	none := &job.Refusal{Step: "session", Errno: int(syscall.ENOSPC), Message: "no room for a layer"}
	h.full = func(int) error { // kept layers take room, too
		if len(h.live) >= 4 {
			return none
		}
		return nil
	}
	k := h.manager(t, Options{})
	of := func(client int) *job.Request { return &job.Request{Principal: "a", Session: fmt.Sprint(client)} }
	for n := range 4 {
		use(t, k, of(n), behind)
	}
	if _, err := k.Acquire(t.Context(), of(4), behind); !errors.Is(err, none) {
		t.Errorf("%v", err)
	}
	if got := h.ended(); !slices.Equal(got, []string{"s1 true"}) {
		t.Errorf("closed %q", got)
	}
	lease := acquire(t, k, of(0), behind)
	defer lease.Return(false)
	if lease.ID != "s1" || lease.Replaced != "" {
		t.Errorf("the client whose session has ended got %q, %q", lease.ID, lease.Replaced)
	}
}
