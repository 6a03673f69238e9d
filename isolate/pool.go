package isolate

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// A pool holds the slots of one jail that wait for jobs, and those that are still to be taken down.
//
// Both are made and taken down beside the jobs, and as far as that can wait while no job runs: what the kernel does for
// namespaces takes a processor from the next job, and where a stub cannot join its cgroups by itself, every fork and exit of
// the machine waits for that (see cgroup.Job.Attach). A job that finds no slot makes its own.
//
// How many wait follows the demand. The pool grows to what jobs took since it was full, when one of them found nothing;
// and it gives back half of those that were never needed in a while (the working set of Bonwick and Adams, Magazines and
// Vmem, USENIX 2001). A pool that has not been used for the longest time gives to others when the supervisor has no more
// slots to give.
type pool struct {
	jail *jail
	work sync.WaitGroup // reconcile

	mu          sync.Mutex
	ready       []*slot     // guarded by mu: that wait, the newest last
	used        []usedSlot  // guarded by mu: to be taken down, the oldest first
	want        int         // guarded by mu: how many are to wait
	taken       int         // guarded by mu: jobs that came since that many waited
	low         int         // guarded by mu: the fewest that waited since the last trim
	last        time.Time   // guarded by mu: when the last job came
	reconciling bool        // guarded by mu: reconcile runs
	stuck       bool        // guarded by mu: a slot could not be made, and no job has come since
	closed      bool        // guarded by mu
	rest        *time.Timer // guarded by mu: runs reconcile when the jobs pause; nil if there is nothing to do
	since       time.Time   // guarded by mu: when rest was set first
	trimmer     *time.Timer // guarded by mu: nil if there is nothing to give back
}

// A usedSlot was used, or is not wanted any more.
type usedSlot struct {
	*slot
	at time.Time
}

const (
	// minSlots is how many wait at least, if the supervisor has as many.
	minSlots = 2
	// restTime is how long no job has run before slots are made and taken down, and restPatience how long jobs may put that
	// off.
	restTime     = 3 * time.Millisecond
	restPatience = 50 * time.Millisecond
	// maxUsed is how many used slots wait to be taken down, and usedPatience how long one does, whatever there is to do.
	maxUsed      = 16
	usedPatience = 250 * time.Millisecond
	// trimInterval is how long a slot that nobody needed waits.
	trimInterval = 20 * time.Second
)

func newPool(j *jail) *pool { return &pool{jail: j, want: max(0, min(minSlots, j.s.config.Slots))} }

// begin makes the first slot, beside whatever else is made for a new jail, and closes made when that is done. The next is
// made when a job has ended, as ever: not while the first runs.
func (p *pool) begin() (made <-chan struct{}) {
	done := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.want == 0 || p.closed || p.reconciling {
		close(done)
		return done
	}
	p.reconciling = true
	p.last = time.Now() // a job waits for the jail
	p.work.Go(func() {
		p.make()
		p.mu.Lock()
		p.reconciling = false
		p.mu.Unlock()
		close(done) // before that no job comes, whose end could be missed
	})
	return done
}

// take returns a slot that waited, or nil.
func (p *pool) take() *slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = time.Now()
	p.taken++
	for n := len(p.ready); n > 0; n = len(p.ready) {
		sl := p.ready[n-1]
		p.ready = p.ready[:n-1]
		p.jail.s.slots.Add(-1)
		p.low = min(p.low, n-1)
		if sl.lives() {
			return sl
		}
		p.used = append(p.used, usedSlot{sl, p.last})
	}
	p.want = max(p.want, min(p.taken, p.jail.s.config.Slots)) // which may be negative
	p.low = 0
	return nil
}

// release takes a slot that was used, to be taken down.
func (p *pool) release(sl *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		go sl.destroy() // the jail waits for it
		return
	}
	p.used = append(p.used, usedSlot{sl, time.Now()})
	p.stuck = false
	p.schedule()
}

// schedule sees to it that what is to be done will be. The caller holds p.mu.
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

// short says whether at most n wait, and more are wanted. With 0, the next job would find nothing. The caller holds p.mu.
func (p *pool) short(n int) bool {
	return len(p.ready) <= n && len(p.ready) < p.want && !p.idle()
}

// idle says whether no slot is to be made. The caller holds p.mu.
func (p *pool) idle() bool { return p.stuck || p.closed || p.jail.s.ctx.Err() != nil }

// busy says whether jobs run that the pool still waits for. The caller holds p.mu.
func (p *pool) busy() bool { return !p.jail.s.resting() && time.Since(p.since) < restPatience }

// resting says whether no job has run for restTime.
func (s *Supervisor) resting() bool {
	return s.live.Load() == 0 && time.Since(s.began)-time.Duration(s.left.Load()) >= restTime
}

// start starts reconcile. The caller holds p.mu.
func (p *pool) start() {
	p.reconciling = true
	p.work.Go(p.reconcile)
}

// onIdle starts reconcile, unless jobs put it off.
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

// reconcile does what there is to do, until a job comes for which it can wait.
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

// next returns a slot to be taken down, or nil and whether one is to be made.
func (p *pool) next() (used *slot, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hungry, busy := p.short(p.want/8), p.busy()
	switch n := len(p.used); {
	case n >= maxUsed, n > 0 && !hungry && !busy, n > 0 && time.Since(p.used[0].at) > usedPatience:
		used, p.used = p.used[0].slot, p.used[1:]
		return used, false
	case p.idle():
		return nil, false
	}
	return nil, hungry || len(p.ready) < p.want && !busy
}

// pause ends reconcile. What is left to do waits for the jobs to rest.
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

// full notes that as many wait as are wanted. The caller holds p.mu.
func (p *pool) full() {
	p.taken = 0
	if p.trimmer == nil {
		p.trimLater()
	}
}

// trimLater has the pool trimmed, if it may give something back then. The caller holds p.mu.
func (p *pool) trimLater() {
	p.trimmer = nil
	if p.want > minSlots {
		p.low = len(p.ready)
		p.trimmer = time.AfterFunc(p.jail.s.config.trim, p.trim)
	}
}

// trim gives back half of what nobody needed since the last time.
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

// giveBack has n of the slots that wait taken down, the oldest first. The caller holds p.mu.
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

// make makes a slot that waits, and says whether there is one.
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
			j.s.config.Log.Warn("no slot made ahead", "jail", j.name, "error", err)
		}
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = append(p.ready, sl)
	return true
}

// reserveSlot counts one more slot that waits in the pool, if there may be one. When there are as many as there may be, the
// pool that no job came to for the longest time gives one back.
func (s *Supervisor) reserveSlot(p *pool) bool {
	for s.slots.Add(1) > int64(s.config.MaxSlots) {
		s.slots.Add(-1)
		if other := s.longestUnused(p); other == nil || !other.give() {
			return false
		}
	}
	return true
}

// longestUnused is the pool with a slot to give that no job came to for the longest time, if that is longer than for p.
func (s *Supervisor) longestUnused(p *pool) (longest *pool) {
	p.mu.Lock()
	when := p.last
	p.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jails {
		if last, some := j.pool.lastJob(); some && last.Before(when) {
			longest, when = j.pool, last
		}
	}
	return longest
}

// lastJob is when the last job came, and whether there is a slot to give.
func (p *pool) lastJob() (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, len(p.ready) > 0
}

// give has a slot that waits taken down, and says whether there was one.
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

// close takes down all slots that are not in use. It returns when that is done.
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
		left = append(left, s.slot)
	}
	p.jail.s.slots.Add(-int64(len(p.ready)))
	p.ready, p.used = nil, nil
	p.mu.Unlock()
	for _, sl := range left {
		sl.destroy()
	}
}
