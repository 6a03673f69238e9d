package cell

import (
	"errors"
	"slices"
	"sync"
	"time"

	"corral/internal/fault"
)

// A pool holds the slots of one jail that wait for jobs, and those that are still to be torn down.
//
// Slots are made and torn down in the background, and if possible while no job runs: the kernel's work on namespaces
// takes a processor from the next job, and where a stub cannot join its cgroups by itself, every fork and exit on the
// machine waits for that (see cgroup.Job.Attach). A job that finds no slot makes its own.
//
// The number of waiting slots follows demand, and that of all pools together is bounded.
type pool struct {
	jail *Jail
	work sync.WaitGroup // tracks reconcile

	mu          fault.Mutex
	ready       []*Slot     // guarded by mu: waiting slots, the newest last
	used        usedSlots   // guarded by mu
	demand      demand      // guarded by mu: how many slots are to wait
	reconciling bool        // guarded by mu: reconcile is running
	stuck       bool        // guarded by mu: making a slot failed, and no job has ended since
	closed      bool        // guarded by mu
	rest        *time.Timer // guarded by mu: calls onIdle; nil if nothing is scheduled
	since       time.Time   // guarded by mu: when the pending work was first scheduled
	trimmer     *time.Timer // guarded by mu: calls trim; nil if there is nothing to give up
}

const (
	// restTime is how long no job must have run before slots are made and torn down, and restPatience how long jobs
	// can delay that.
	restTime     = 3 * time.Millisecond
	restPatience = 50 * time.Millisecond
	// trimInterval is how long a slot waits unneeded before it can be given up.
	trimInterval = 20 * time.Second
)

func newPool(j *Jail) *pool { return &pool{jail: j, demand: newDemand(j.s.Slots)} }

// begin makes the first slot concurrently with the rest of a new jail, and closes made when that is done. The second
// slot is made when a job has ended, not while the first job runs.
func (p *pool) begin() (made <-chan struct{}) {
	done := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.demand.want == 0 || p.closed || p.reconciling {
		close(done)
		return done
	}
	p.reconciling = true
	p.work.Go(func() {
		defer close(done) // no job can come before this, so no job's end is missed
		p.contain(func() {
			p.make()
			fault.With(&p.mu, func() { p.reconciling = false })
		})
	})
	return done
}

// take returns a waiting slot, or nil.
func (p *pool) take() *Slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.demand.taken++
	for n := len(p.ready); n > 0; n = len(p.ready) {
		sl := p.ready[n-1]
		p.ready = p.ready[:n-1]
		p.jail.s.waiting.Add(-1)
		p.demand.left(n - 1)
		if sl.usable() {
			return sl
		}
		p.used.add(sl)
	}
	p.demand.missed()
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
	p.used.add(sl)
	p.stuck = false
	p.schedule()
}

// relieve tears down the oldest slot that a job has used, and reports whether there was one.
func (p *pool) relieve() bool {
	sl := fault.Get(&p.mu, func() *Slot {
		if len(p.used) == 0 {
			return nil
		}
		return p.used.oldest()
	})
	if sl == nil {
		return false
	}
	sl.destroy()
	return true
}

// schedule makes sure that pending work will be done. The caller holds p.mu.
func (p *pool) schedule() {
	if p.since.IsZero() {
		p.since = time.Now()
	}
	switch {
	case p.closed, p.reconciling:
	case p.short(0) || p.used.many():
		p.start()
	case p.rest == nil:
		p.rest = fault.AfterFunc(p.jail.s.Log, "the slots of a jail", restTime, p.onIdle)
	}
}

// short reports whether at most n slots wait and more are wanted. With n = 0, the next job would find none. The
// caller holds p.mu.
func (p *pool) short(n int) bool {
	return len(p.ready) <= n && len(p.ready) < p.demand.want && !p.idle()
}

// idle reports whether no slots may be made now. The caller holds p.mu.
func (p *pool) idle() bool { return p.stuck || p.closed || p.jail.s.Context.Err() != nil }

// busy reports whether the pool should still wait for running jobs. The caller holds p.mu.
func (p *pool) busy() bool { return !p.jail.s.resting() && time.Since(p.since) < restPatience }

// start starts reconcile. The caller holds p.mu.
func (p *pool) start() {
	p.reconciling = true
	p.work.Go(func() { p.contain(p.reconcile) })
}

// contain calls f, which makes or tears down slots. After a panic the pool makes no more, and the jail takes no further job.
func (p *pool) contain(f func()) {
	if !fault.Do(p.jail.s.Log, "the slots of a jail", f, "jail", p.jail.name) {
		return
	}
	fault.With(&p.mu, func() { p.reconciling, p.stuck = false, true })
	p.jail.Retire()
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
	hungry, busy := p.short(p.demand.want/8), p.busy()
	if used := p.used.next(!hungry && !busy); used != nil {
		return used, false
	}
	if p.idle() {
		return nil, false
	}
	return nil, hungry || len(p.ready) < p.demand.want && !busy
}

// pause ends reconcile. The remaining work is scheduled for when the jobs rest.
func (p *pool) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	full := len(p.ready) >= p.demand.want
	if full {
		p.demand.taken = 0
		if p.trimmer == nil {
			p.trimLater()
		}
	}
	p.reconciling = false
	if full || p.stuck {
		p.since = time.Time{}
	}
	if len(p.used) > 0 || !full && !p.idle() {
		p.schedule()
	}
}

// trimLater schedules a trim if the pool has more than the minimum. The caller holds p.mu.
func (p *pool) trimLater() {
	p.trimmer = nil
	if p.demand.want > minSlots {
		p.demand.low = len(p.ready)
		p.trimmer = fault.AfterFunc(p.jail.s.Log, "the slots of a jail", p.jail.s.Trim, p.trim)
	}
}

// trim gives up half of the slots that were not needed since the last trim.
func (p *pool) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.demand.trim()
	p.giveBack(len(p.ready) - p.demand.want)
	p.trimLater()
}

// giveBack moves the n oldest waiting slots to those to be torn down. The caller holds p.mu.
func (p *pool) giveBack(n int) {
	if n = min(n, len(p.ready)); n <= 0 {
		return
	}
	for _, sl := range p.ready[:n] {
		p.used.add(sl)
	}
	p.ready = slices.Clone(p.ready[n:])
	p.jail.s.waiting.Add(-int64(n))
	p.schedule()
}

// make makes a waiting slot, and reports whether it did.
func (p *pool) make() bool {
	j := p.jail
	if !j.s.reserveSlot() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.demand.want = len(p.ready) // until a job finds none
		return false
	}
	sl, err := j.plainSlot(kindOf{})
	if err != nil {
		j.s.waiting.Add(-1)
		fault.With(&p.mu, func() { p.stuck = true })
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

// keep makes a slot wait that was made for another reason than demand, if there is room for one more.
func (p *pool) keep(sl *Slot) {
	kept := p.jail.s.reserveSlot()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case kept:
		p.ready = append(p.ready, sl)
	default:
		p.used.add(sl)
		p.schedule()
	}
}

// close tears down all slots that are not in use, and returns when that is done.
func (p *pool) close() {
	fault.With(&p.mu, func() {
		p.closed = true
		for _, t := range []*time.Timer{p.rest, p.trimmer} {
			if t != nil {
				t.Stop()
			}
		}
	})
	p.work.Wait()
	for _, sl := range p.takeAll() {
		sl.destroy()
	}
}

// takeAll returns all slots that are not in use.
func (p *pool) takeAll() []*Slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.ready
	for _, s := range p.used {
		left = append(left, s.slot)
	}
	p.jail.s.waiting.Add(-int64(len(p.ready)))
	p.ready, p.used = nil, nil
	return left
}
