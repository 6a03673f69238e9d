package isolate

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/isolate/host"
	"corral/job"
)

// pool returns the pool of the jail of the front's repository.
func (f *front) pool() *pool {
	f.t.Helper()
	for _, j := range f.s.standing() {
		if j.key.Path == f.repo {
			return j.pool
		}
	}
	f.t.Fatal("no jail stands")
	return nil
}

// waiting returns the numbers of waiting, wanted and used slots.
func (p *pool) waiting() (ready, want, used int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready), p.want, len(p.used)
}

// holds waits until n slots are wanted and wait in the pool and no used slots are left.
func holds(t *testing.T, p *pool, n int) {
	t.Helper()
	eventually(t, func() string {
		if ready, want, used := p.waiting(); ready != n || want != n || used != 0 {
			return fmt.Sprintf("%d slots wait of %d, %d are used; want %d", ready, want, used, n)
		}
		return ""
	})
}

// full waits until a pool has as many waiting slots as it wants, at least the minimum, and no used ones. After
// several jobs in a row a pool wants more for a while.
func full(t *testing.T, p *pool) {
	t.Helper()
	eventually(t, func() string {
		if ready, want, used := p.waiting(); ready != want || ready < minSlots || used != 0 {
			return fmt.Sprintf("%d slots wait of %d, %d are used", ready, want, used)
		}
		return ""
	})
}

// burst runs n jobs concurrently.
func (f *front) burst(n int) {
	f.t.Helper()
	var jobs []*live
	for range n {
		l, err := f.start(f.spec("sh", "-c", "echo up; read x"))
		if err != nil {
			f.t.Fatal(err)
		}
		jobs = append(jobs, l)
	}
	for _, l := range jobs {
		l.until("up")
	}
	for _, l := range jobs {
		if d, err := l.end(); err != nil {
			f.t.Errorf("%+v %v", d, err)
		}
	}
}

// TestPoolFollowsDemand: as many slots wait as jobs came at once, up to the maximum; slots that are not needed are
// given up.
func TestPoolFollowsDemand(t *testing.T) {
	f := newFront(t, func(c *Config) { c.Slots, c.trim = 6, time.Hour }) // the test trims the pool
	f.sh("true")
	p := f.pool()
	holds(t, p, minSlots)
	f.burst(5)
	holds(t, p, 5)
	f.burst(9)
	holds(t, p, 6)
	if n := f.s.cells.slots.Load(); n != 6 {
		t.Errorf("the supervisor counts %d slots", n)
	}
	p.trim() // all were needed
	holds(t, p, 6)
	f.burst(5)
	holds(t, p, 6)
	for _, want := range []int{5, 2, 2} { // one of six was not needed, then half of five, and never fewer than the minimum
		p.trim()
		holds(t, p, want)
	}
	if n := f.s.cells.slots.Load(); n != minSlots {
		t.Errorf("the supervisor counts %d slots", n)
	}
	f.s.standing()[0].drop()
	eventually(t, func() string {
		if n := f.s.cells.slots.Load(); n != 0 {
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
		f := newFront(t, change)
		for range 3 {
			f.sh("true")
		}
		f.burst(3)
		holds(t, f.pool(), 0)
	}
}

// TestPoolEviction: the pool that was unused for the longest time gives up slots to one that needs them.
func TestPoolEviction(t *testing.T) {
	f := newFront(t, func(c *Config) { c.MaxSlots, c.trim = 5, time.Hour })
	f.burst(4)
	holds(t, f.pool(), 4)
	other := &front{t, f.s, f.c, newRepo(t)}
	other.burst(3)
	holds(t, other.pool(), 3)
	holds(t, f.pool(), 2)
	f.burst(4)
	holds(t, f.pool(), 4)
	holds(t, other.pool(), 1)
}

// TestReserveSlot: the maximum of waiting slots holds however many pools fill concurrently.
func TestReserveSlot(t *testing.T) {
	s := &jails{cellConfig: cellConfig{MaxSlots: 5}}
	var reserved atomic.Int64
	var work sync.WaitGroup
	for range 50 {
		work.Go(func() {
			if s.reserveSlot(&pool{}) {
				reserved.Add(1)
			}
		})
	}
	work.Wait()
	if n := reserved.Load(); n != 5 || s.slots.Load() != 5 {
		t.Errorf("%d of 5 were reserved, %d are counted", n, s.slots.Load())
	}
}

// TestDeadSlot: a slot whose stub was killed while it waited is not given to a job.
func TestDeadSlot(t *testing.T) {
	f := newFront(t)
	f.sh("true")
	p := f.pool()
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
	f.sh("true")
	holds(t, p, minSlots)
}

// TestSlotsAreUsedOnce: no job finds anything that another left, though each takes a slot that waited. (The kernel
// reuses namespace numbers, so they prove nothing.)
func TestSlotsAreUsedOnce(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("perl"))
	f := newFront(t)
	for range 12 {
		found := f.sh("ls /tmp/mine /dev/shm/mine 2>/dev/null; tail -n +2 /proc/sysvipc/shm; grep mine /proc/net/unix; touch /tmp/mine /dev/shm/mine; " +
			`perl -e 'shmget(7, 4096, 01600) // die; use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, pack_sockaddr_un("\0mine")) or die'`)
		if found != "" {
			t.Errorf("a job found %q", found)
		}
	}
}

// TestFirstOutcomeWins: the first request to end a job determines the outcome, however many there are.
func TestFirstOutcomeWins(t *testing.T) {
	f := newFront(t)
	for range 20 {
		spec := f.spec("sleep", "5")
		spec.Limits.Wall = 30 * time.Millisecond
		l, err := f.start(spec)
		if err != nil {
			t.Fatal(err)
		}
		asked := make(chan struct{})
		time.AfterFunc(28*time.Millisecond, func() {
			defer close(asked)
			for range 4 {
				_ = l.Kill()
			}
		})
		d, err := l.end()
		<-asked
		if err != nil || d.Status != job.Timeout && d.Status != job.Cancelled {
			t.Errorf("%+v %v", d.Result, err)
		}
	}
}

// TestUsedSlotsTornDownAfterRetire: when no more slots can be made, used ones are still torn down.
func TestUsedSlotsTornDownAfterRetire(t *testing.T) {
	f := newFront(t)
	f.sh("true")
	p := f.pool()
	holds(t, p, minSlots)
	var taken []*slot
	for range minSlots {
		taken = append(taken, p.take())
	}
	f.s.standing()[0].retire()
	for _, sl := range taken {
		p.release(sl)
	}
	eventually(t, func() string {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.used) > 0 || p.reconciling {
			return fmt.Sprintf("%d used slots, at it: %v", len(p.used), p.reconciling)
		}
		return ""
	})
}

// TestDiskLimitAtExit: a job that exceeds its limit with its last action is not left frozen, and nothing that waits
// for it hangs.
func TestDiskLimitAtExit(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("fallocate"))
	f := newFront(t)
	spec := f.spec("sh", "-c", "mkdir -p $(seq -f d%g 2000); echo >>.envrc; exec fallocate -l 24M f$$")
	spec.Limits.Disk = 4 << 20
	for range sandboxtest.Scale(20) {
		if _, err := f.try(spec); err != nil {
			t.Error(err)
		}
		f.sh("rm -rf d* f* .envrc")
	}
	p := f.pool()
	eventually(t, func() string {
		if _, _, used := p.waiting(); used != 0 {
			return fmt.Sprintf("%d slots are not torn down", used)
		}
		return ""
	})
}
