package isolate

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/sandboxtest"
	"corral/job"
)

// pool returns the pool of the one jail that stands in the front's repository.
func (f *front) pool() *pool {
	f.t.Helper()
	for _, j := range f.s.standing() {
		if j.key.path == f.repo {
			return j.pool
		}
	}
	f.t.Fatal("no jail stands")
	return nil
}

// waiting says how many slots wait, and how many are to.
func (p *pool) waiting() (ready, want, used int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready), p.want, len(p.used)
}

// holds waits until so many slots wait in a pool and nothing is left to be taken down.
func holds(t *testing.T, p *pool, n int) {
	t.Helper()
	eventually(t, func() string {
		if ready, want, used := p.waiting(); ready != n || want != n || used != 0 {
			return fmt.Sprintf("%d slots wait of %d, %d are used; want %d", ready, want, used, n)
		}
		return ""
	})
}

// full waits until a pool has as many slots as it wants, some, and nothing left to be taken down. A pool wants more for a
// while after jobs in a row.
func full(t *testing.T, p *pool) {
	t.Helper()
	eventually(t, func() string {
		if ready, want, used := p.waiting(); ready != want || ready < minSlots || used != 0 {
			return fmt.Sprintf("%d slots wait of %d, %d are used", ready, want, used)
		}
		return ""
	})
}

// burst has n jobs run at the same time.
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

// TestDemand: as many slots wait as jobs came at once, up to the bound; what nobody needs is given back.
func TestDemand(t *testing.T) {
	f := newFront(t, func(c *Config) { c.Slots, c.trim = 6, time.Hour }) // it is trimmed here
	f.sh("true")
	p := f.pool()
	holds(t, p, minSlots)
	f.burst(5)
	holds(t, p, 5)
	f.burst(9)
	holds(t, p, 6)
	if n := f.s.slots.Load(); n != 6 {
		t.Errorf("the supervisor counts %d slots", n)
	}
	p.trim() // all were needed
	holds(t, p, 6)
	f.burst(5)
	holds(t, p, 6)
	for _, want := range []int{5, 2, 2} { // one of six was not needed, then half of five, and no fewer than the least
		p.trim()
		holds(t, p, want)
	}
	if n := f.s.slots.Load(); n != minSlots {
		t.Errorf("the supervisor counts %d slots", n)
	}
	f.s.standing()[0].drop()
	eventually(t, func() string {
		if n := f.s.slots.Load(); n != 0 {
			return fmt.Sprintf("%d slots without a jail", n)
		}
		return ""
	})
}

// TestNoSlots: without slots every job makes its own.
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

// TestSlotsOfAll: the pool that was not used for the longest time gives its slots to one that needs them.
func TestSlotsOfAll(t *testing.T) {
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

// TestReserveSlot: however many pools fill at once, no more slots wait than may.
func TestReserveSlot(t *testing.T) {
	s := &Supervisor{config: Config{MaxSlots: 5}}
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

// TestDeadSlot: a slot whose stub was killed while it waited is no job's.
func TestDeadSlot(t *testing.T) {
	f := newFront(t)
	f.sh("true")
	p := f.pool()
	holds(t, p, minSlots)
	p.mu.Lock()
	for _, sl := range p.ready {
		pid, err := pidOf(sl.pidfd)
		if err != nil || unix.Kill(pid, unix.SIGKILL) != nil {
			t.Errorf("stub %d: %v", pid, err)
		}
		if err := sl.wait(slotPatience); err != nil {
			t.Error(err)
		}
	}
	p.mu.Unlock()
	f.sh("true")
	holds(t, p, minSlots)
}

// TestSlotsAreUsedOnce: no job finds what another left, though each takes a slot that waited. (The kernel gives numbers of
// namespaces again, so they tell nothing.)
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

// TestEndings: whatever asks for a job's end first is why it ended, however many ask.
func TestEndings(t *testing.T) {
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

// TestNoMoreSlots: where slots cannot be made any more, those that were used are taken down all the same.
func TestNoMoreSlots(t *testing.T) {
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

// TestLimitAtTheEnd: a job that goes beyond its limit with its last act is not left standing still, nor is what waits for it.
func TestLimitAtTheEnd(t *testing.T) {
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
			return fmt.Sprintf("%d slots are not taken down", used)
		}
		return ""
	})
}
