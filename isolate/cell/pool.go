package cell

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// A pool holds the slots of one jail that wait for jobs, and those that are still to be torn down.
//
// Slots are made and torn down in the background, and if possible while no job runs: the kernel's work on namespaces
// takes a processor from the next job, and where a stub cannot join its cgroups by itself, every fork and exit on the
// machine waits for that (see cgroup.Job.Attach). A job that finds no slot makes its own.
//
// The number of waiting slots follows demand. When a job finds none, the pool grows to the number of jobs that came
// since it was last full; periodically it gives up half of the slots that were never needed (the working set of
// Bonwick and Adams, Magazines and Vmem, USENIX 2001). When the supervisor has reached its maximum of slots, the pool
// that has been unused for the longest time gives up one.
type pool struct {
	jail *Jail
	work sync.WaitGroup // tracks reconcile

	mu          sync.Mutex
	ready       []*Slot     // guarded by mu: waiting slots, the newest last
	used        []usedSlot  // guarded by mu: to be torn down, the oldest first
	want        int         // guarded by mu: target length of ready
	taken       int         // guarded by mu: jobs that came since the target was last reached
	low         int         // guarded by mu: minimum length of ready since the last trim
	last        time.Time   // guarded by mu: when the last job came
	reconciling bool        // guarded by mu: reconcile is running
	stuck       bool        // guarded by mu: making a slot failed, and no job has ended since
	closed      bool        // guarded by mu
	rest        *time.Timer // guarded by mu: calls onIdle; nil if nothing is scheduled
	since       time.Time   // guarded by mu: when the pending work was first scheduled
	trimmer     *time.Timer // guarded by mu: calls trim; nil if there is nothing to give up
}

// A usedSlot was used by a job, or is surplus.
type usedSlot struct {
	*Slot
	at time.Time
}

const (
	// minSlots is the minimum number of waiting slots, within the configured maximum.
	minSlots = 2
	// restTime is how long no job must have run before slots are made and torn down, and restPatience how long jobs
	// can delay that.
	restTime     = 3 * time.Millisecond
	restPatience = 50 * time.Millisecond
	// maxUsed is the number of used slots, and usedPatience the age of the oldest, at which slots are torn down even
	// while jobs run.
	maxUsed      = 16
	usedPatience = 250 * time.Millisecond
	// trimInterval is how long a slot waits unneeded before it can be given up.
	trimInterval = 20 * time.Second
)

func newPool(j *Jail) *pool { return &pool{jail: j, want: max(0, min(minSlots, j.s.Slots))} }

// begin makes the first slot concurrently with the rest of a new jail, and closes made when that is done. The second
// slot is made when a job has ended, not while the first job runs.
func (p *pool) begin() (made <-chan struct{}) {
	done := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.want == 0 || p.closed || p.reconciling {
		close(done)
		return done
	}
	p.reconciling = true
	p.last = time.Now() // a job is waiting for the jail
	p.work.Go(func() {
		p.make()
		p.mu.Lock()
		p.reconciling = false
		p.mu.Unlock()
		close(done) // no job can come before this, so no job's end is missed
	})
	return done
}

// take returns a waiting slot, or nil.
func (p *pool) take() *Slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = time.Now()
	p.taken++
	for n := len(p.ready); n > 0; n = len(p.ready) {
		sl := p.ready[n-1]
		p.ready = p.ready[:n-1]
		p.jail.s.slots.Add(-1)
		p.low = min(p.low, n-1)
		if sl.usable() {
			return sl
		}
		p.used = append(p.used, usedSlot{sl, p.last})
	}
	p.want = max(p.want, min(p.taken, p.jail.s.Slots)) // the configured maximum may be negative
	p.low = 0
	return nil
}

// release takes over a slot that a job has used, to be torn down in the background.
func (p *pool) release(sl *Slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		go sl.destroy() // the jail's teardown waits for it
		return
	}
	p.used = append(p.used, usedSlot{sl, time.Now()})
	p.stuck = false
	p.schedule()
}

// schedule makes sure that pending work will be done. The caller holds p.mu.
func (p *pool) schedule() {
	if p.since.IsZero() {
		p.since = time.Now()
	}
	switch {
	case p.closed, p.reconciling:
	case p.short(0) || len(p.used) >= maxUsed:
		p.start()
	case p.rest == nil:
		p.rest = time.AfterFunc(restTime, p.onIdle)
	}
}

// short reports whether at most n slots wait and more are wanted. With n = 0, the next job would find none. The
// caller holds p.mu.
func (p *pool) short(n int) bool {
	return len(p.ready) <= n && len(p.ready) < p.want && !p.idle()
}

// idle reports whether no slots may be made now. The caller holds p.mu.
func (p *pool) idle() bool { return p.stuck || p.closed || p.jail.s.Context.Err() != nil }

// busy reports whether the pool should still wait for running jobs. The caller holds p.mu.
func (p *pool) busy() bool { return !p.jail.s.resting() && time.Since(p.since) < restPatience }

// start starts reconcile. The caller holds p.mu.
func (p *pool) start() {
	p.reconciling = true
	p.work.Go(p.reconcile)
}

// onIdle starts reconcile, or reschedules itself while jobs run.
func (p *pool) onIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed, p.reconciling:
	case p.busy():
		p.rest.Reset(restTime)
		return
	default:
		p.start()
	}
	p.rest = nil
}

// reconcile makes and tears down slots until nothing is left to do or the rest can wait for running jobs.
func (p *pool) reconcile() {
	for {
		switch sl, more := p.next(); {
		case sl != nil:
			sl.destroy()
		case !more, !p.make():
			p.pause()
			return
		}
	}
}

// next returns a slot to be torn down, or nil and whether one is to be made.
func (p *pool) next() (used *Slot, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hungry, busy := p.short(p.want/8), p.busy()
	switch n := len(p.used); {
	case n >= maxUsed, n > 0 && !hungry && !busy, n > 0 && time.Since(p.used[0].at) > usedPatience:
		used, p.used = p.used[0].Slot, p.used[1:]
		return used, false
	case p.idle():
		return nil, false
	}
	return nil, hungry || len(p.ready) < p.want && !busy
}

// pause ends reconcile. The remaining work is scheduled for when the jobs rest.
func (p *pool) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	full := len(p.ready) >= p.want
	if full {
		p.full()
	}
	p.reconciling = false
	if full || p.stuck {
		p.since = time.Time{}
	}
	if len(p.used) > 0 || !full && !p.idle() {
		p.schedule()
	}
}

// full records that the target was reached. The caller holds p.mu.
func (p *pool) full() {
	p.taken = 0
	if p.trimmer == nil {
		p.trimLater()
	}
}

// trimLater schedules a trim if the pool has more than the minimum. The caller holds p.mu.
func (p *pool) trimLater() {
	p.trimmer = nil
	if p.want > minSlots {
		p.low = len(p.ready)
		p.trimmer = time.AfterFunc(p.jail.s.Trim, p.trim)
	}
}

// trim gives up half of the slots that were not needed since the last trim.
func (p *pool) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.want = max(minSlots, p.want-(p.low+1)/2)
	p.giveBack(len(p.ready) - p.want)
	p.trimLater()
}

// giveBack moves the n oldest waiting slots to those to be torn down. The caller holds p.mu.
func (p *pool) giveBack(n int) {
	if n = min(n, len(p.ready)); n <= 0 {
		return
	}
	for _, sl := range p.ready[:n] {
		p.used = append(p.used, usedSlot{sl, time.Now()})
	}
	p.ready = slices.Clone(p.ready[n:])
	p.jail.s.slots.Add(-int64(n))
	p.schedule()
}

// make makes a waiting slot, and reports whether it did.
func (p *pool) make() bool {
	j := p.jail
	if !j.s.reserveSlot(p) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.want = len(p.ready) // until a job finds none
		return false
	}
	sl, err := j.plainSlot()
	if err != nil {
		j.s.slots.Add(-1)
		p.mu.Lock()
		p.stuck = true
		p.mu.Unlock()
		if !errors.Is(err, errJailEnded) && j.alive() {
			j.s.Log.Warn("slot not made ahead", "jail", j.name, "error", err)
		}
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = append(p.ready, sl)
	return true
}

// reserveSlot counts one more waiting slot, and reports whether p may have it. At the maximum, the pool that has been
// unused for the longest time gives up a slot.
func (s *Jails) reserveSlot(p *pool) bool {
	for s.slots.Add(1) > int64(s.MaxSlots) {
		s.slots.Add(-1)
		if other := s.longestUnused(p); other == nil || !other.give() {
			return false
		}
	}
	return true
}

// longestUnused returns the pool with waiting slots to which no job came for the longest time, if that is longer than
// for p.
func (s *Jails) longestUnused(p *pool) (longest *pool) {
	p.mu.Lock()
	when := p.last
	p.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.all {
		if last, some := j.pool.lastJob(); some && last.Before(when) {
			longest, when = j.pool, last
		}
	}
	return longest
}

// lastJob returns when the last job came, and whether there are waiting slots.
func (p *pool) lastJob() (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, len(p.ready) > 0
}

// give gives up one waiting slot, and reports whether there was one.
func (p *pool) give() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.ready) == 0 {
		return false
	}
	p.want = len(p.ready) - 1
	p.giveBack(1)
	return true
}

// close tears down all slots that are not in use, and returns when that is done.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	for _, t := range []*time.Timer{p.rest, p.trimmer} {
		if t != nil {
			t.Stop()
		}
	}
	p.mu.Unlock()
	p.work.Wait()
	p.mu.Lock()
	left := p.ready
	for _, s := range p.used {
		left = append(left, s.Slot)
	}
	p.jail.s.slots.Add(-int64(len(p.ready)))
	p.ready, p.used = nil, nil
	p.mu.Unlock()
	for _, sl := range left {
		sl.destroy()
	}
}
