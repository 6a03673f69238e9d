package cell

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/isolate/wire"
)

// TestPoolFollowsDemand: as many slots wait as jobs came at once, up to the maximum; slots that are not needed are
// given up.
func TestPoolFollowsDemand(t *testing.T) {
	s := newTestJails(t, func(c *Config) { c.Slots, c.Trim = 6, time.Hour }) // the test trims the pool
	j := s.enterNew(t)
	j.burst(t, 1) // the second slot is made when a job has ended
	p := j.pool
	holds(t, p, minSlots)
	j.burst(t, 5)
	holds(t, p, 5)
	j.burst(t, 9)
	holds(t, p, 6)
	if n := s.waiting.Load(); n != 6 {
		t.Errorf("the supervisor counts %d slots", n)
	}
	p.trim() // all were needed
	holds(t, p, 6)
	j.burst(t, 5)
	holds(t, p, 6)
	for _, want := range []int{5, 2, 2} { // one of six was not needed, then half of five, and never fewer than the minimum
		p.trim()
		holds(t, p, want)
	}
	if n := s.waiting.Load(); n != minSlots {
		t.Errorf("the supervisor counts %d slots", n)
	}
	j.Drop()
	sandboxtest.Settled(t, func() string {
		if n := s.waiting.Load(); n != 0 {
			return fmt.Sprintf("%d slots without a jail", n)
		}
		return ""
	})
}

// TestNoSlots: without waiting slots every job makes its own.
func TestNoSlots(t *testing.T) {
	for _, change := range []func(*Config){
		func(c *Config) { c.Slots = -1 },
		func(c *Config) { c.MaxSlots = -1 },
	} {
		j := newTestJails(t, change).enterNew(t)
		for range 3 {
			j.burst(t, 1)
		}
		j.burst(t, 3)
		holds(t, j.pool, 0)
	}
}

// TestReserveSlot: the maximum of waiting slots holds however many pools fill concurrently.
func TestReserveSlot(t *testing.T) {
	s := &Jails{Config: Config{MaxSlots: 5}}
	var reserved atomic.Int64
	var work sync.WaitGroup
	for range 50 {
		work.Go(func() {
			if s.reserveSlot() {
				reserved.Add(1)
			}
		})
	}
	work.Wait()
	if n := reserved.Load(); n != 5 || s.waiting.Load() != 5 {
		t.Errorf("%d of 5 were reserved, %d are counted", n, s.waiting.Load())
	}
}

// TestDeadSlot: a slot whose stub was killed while it waited is not given to a job.
func TestDeadSlot(t *testing.T) {
	j := newTestJails(t, nil).enterNew(t)
	j.burst(t, 1)
	p := j.pool
	holds(t, p, minSlots)
	p.mu.Lock()
	for _, sl := range p.ready {
		pid, err := host.PidOf(sl.pidfd)
		if err != nil || unix.Kill(pid, unix.SIGKILL) != nil {
			t.Errorf("stub %d: %v", pid, err)
		}
		if err := sl.wait(host.SlotPatience); err != nil {
			t.Error(err)
		}
	}
	p.mu.Unlock()
	sl, err := j.TakeSlot(false)
	if err != nil {
		t.Fatal(err)
	}
	if !sl.usable() {
		t.Error("the slot's stub has exited")
	}
	sl.Release()
	holds(t, p, minSlots)
}

// TestSlotKilledMeanwhile: a slot that is killed after a job has taken it says so, and can be replaced.
func TestSlotKilledMeanwhile(t *testing.T) {
	j := newTestJails(t, nil).enterNew(t)
	_, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	q := &admit.Request{Run: wire.Run{Flags: wire.FlagNoRepo}, Payload: w, Stdout: w, Stderr: w}
	for _, plain := range []bool{false, true} {
		sl, err := j.TakeSlot(plain)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := host.PidOf(sl.pidfd)
		if err != nil || unix.Kill(pid, unix.SIGKILL) != nil {
			t.Errorf("stub %d: %v", pid, err)
		}
		if err := sl.wait(host.SlotPatience); err != nil {
			t.Error(err)
		}
		start := &Job{Request: q, Limits: j.s.Defaults}
		if _, err := sl.Start(start); !errors.Is(err, ErrSlotKilled) {
			t.Errorf("a job began in a slot without processes: %v", err)
		}
		other, err := sl.Replace()
		if err != nil {
			t.Fatal(err)
		}
		sl.Release()
		if _, err := other.Start(start); err != nil {
			t.Errorf("in another slot: %v", err)
		}
		other.Release()
	}
}

// TestUsedSlotsTornDownAfterRetire: when no more slots can be made, used ones are still torn down.
func TestUsedSlotsTornDownAfterRetire(t *testing.T) {
	j := newTestJails(t, nil).enterNew(t)
	j.burst(t, 1)
	p := j.pool
	holds(t, p, minSlots)
	var taken []*Slot
	for range minSlots {
		taken = append(taken, p.take())
	}
	j.retire()
	for _, sl := range taken {
		p.release(sl)
	}
	sandboxtest.Settled(t, func() string {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.used) > 0 || p.reconciling {
			return fmt.Sprintf("%d used slots, at it: %v", len(p.used), p.reconciling)
		}
		return ""
	})
}

// TestUsersOfUsedSlots: a job that comes while slots that others have used have all users of the jail tears one of them down. Without any,
// it is refused.
func TestUsersOfUsedSlots(t *testing.T) {
	j := newTestJails(t, func(c *Config) { c.Slots = -1 }).enterNew(t)
	p := j.pool
	p.mu.Lock()
	p.reconciling = true // so that nobody else tears slots down
	p.mu.Unlock()
	take := func() *Slot {
		t.Helper()
		sl, err := j.TakeSlot(false)
		if err != nil {
			t.Fatal(err)
		}
		return sl
	}
	first, second := take(), take()
	j.users.mu.Lock()
	all := j.users.free
	j.users.free = nil
	j.users.mu.Unlock()
	if _, err := j.TakeSlot(false); err == nil || !strings.Contains(err.Error(), "job users of this jail are in use") {
		t.Errorf("without users: %v", err)
	}
	first.Release()
	second.Release()
	third := take()
	if _, _, used := p.waiting(); used != 1 {
		t.Errorf("%d used slots are left", used)
	}
	third.Release()
	j.users.mu.Lock()
	j.users.free = append(j.users.free, all...)
	j.users.mu.Unlock()
	p.mu.Lock()
	p.start()
	p.mu.Unlock()
}

// waiting returns the numbers of waiting, wanted and used slots.
func (p *pool) waiting() (ready, want, used int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready), p.demand.want, len(p.used)
}

// holds waits until n slots are wanted and wait in the pool and no used slots are left.
func holds(t testing.TB, p *pool, n int) {
	t.Helper()
	sandboxtest.Settled(t, func() string {
		if ready, want, used := p.waiting(); ready != n || want != n || used != 0 {
			return fmt.Sprintf("%d slots wait of %d, %d are used; want %d", ready, want, used, n)
		}
		return ""
	})
}
