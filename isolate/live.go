package isolate

import (
	"cmp"
	"context"
	"crypto/rand"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/fault"
	"corral/isolate/admit"
	"corral/isolate/cell"
	"corral/isolate/door"
	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/isolate/wire"
	"corral/job"
	"corral/store/audit"
)

// A run is a job that was accepted and has not ended.
type run struct {
	s          *Supervisor
	id         string
	peer       host.Peer
	session    string    // id of the session in which it runs; "" if none
	repo       string    // guarded by jobTable.mu while the run is registered; set before the job starts
	started    time.Time // guarded like repo
	limits     job.Limits
	protect    job.Protection
	sent       time.Time        // when the job was sent to its stub: its wall time counts from here, also if this process is delayed
	network    string           // record.Decision.Network
	apart      bool             // it may reach less than other jobs of its session, and shares no network with them
	door       *door.Opening    // of the network of the job or its session, without the sockets and the authority; nil: it reaches no host
	variables  []string         // NAME=VALUE that the job gets unless its request sets them
	claim      job.Claim        // set before the run is registered
	decided    uint64           // sequence number of the decision in the audit log; 0 if none was written
	retire     func()           // lets no further job into its jail or session; nil before these are known
	signals    chan wire.Signal // queue of signals to be forwarded
	done       chan struct{}    // closed when the job has ended
	endHandled chan struct{}    // closed when whoever requested the end no longer uses the slot
	graceDone  chan struct{}    // closed when what grace calls no longer uses the slot

	mu         sync.Mutex
	outcome    wire.Outcome  // guarded by mu: why the job ends; 0 until that is decided
	requested  bool          // guarded by mu: requestEnd set it
	over       bool          // guarded by mu: done is closed
	early      bool          // guarded by mu: its end was decided before it was started
	asked      bool          // guarded by mu: a client asked for the end
	patience   time.Duration // guarded by mu: the time that it has to end by itself, if that is less than Limits.KillAfter
	told       bool          // guarded by mu: all its processes got a signal by which programs end
	grace      *time.Timer   // guarded by mu: kills a job that was told to end, or what its first process has left; nil before that
	slot       *cell.Slot    // guarded by mu: where the job runs; nil before and afterwards
	cpu        int64         // guarded by mu: as usage read it last
	peak       int64         // guarded by mu: likewise
	memory     int64         // guarded by mu: likewise
	usageAt    time.Time     // guarded by mu: when that was
	forwarding bool          // guarded by mu: forwardSignals runs
}

// newJobID returns an id that no other job has. It tells nothing about others: numbers in a row would tell a user how many jobs all users
// run. Its 50 random bits keep a million jobs in an audit log apart.
func newJobID() string { return "job-" + strings.ToLower(rand.Text()[:10]) }

// newRun returns a run with a new id for a job of peer. It can be signaled from now on.
func (s *Supervisor) newRun(peer host.Peer) *run {
	return &run{
		s: s, id: newJobID(), peer: peer, patience: math.MaxInt64,
		signals: make(chan wire.Signal, 8), done: make(chan struct{}), endHandled: make(chan struct{}), graceDone: make(chan struct{}),
	}
}

// request returns the id of the job's request for the diagnostic log, with which the line of the front-end is found. It is a claim: a text
// of another form than front-ends send does not get into a log.
func (r *run) request() string {
	if !audit.IsName(r.claim.Request) {
		return ""
	}
	return r.claim.Request
}

// connect records what the job may reach: all that the rules allow of what it, or its session, asked for.
func (r *run) connect(access admit.Access, o door.Opening) {
	r.door = &o
	r.network = cmp.Or(o.Ask, audit.Allowed)
	for _, name := range access.Variables() {
		r.variables = append(r.variables, name+"="+o.Placeholder)
	}
}

// setOutcome records why the job ends. It returns false if that was decided before.
func (r *run) setOutcome(o wire.Outcome) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.outcome != 0 {
		return false
	}
	r.outcome = o
	return true
}

// requestEnd ends the job with outcome o, unless an outcome was set before: at once, or at its deadline and on request by SIGTERM, with
// Limits.KillAfter to end by itself, which what a limit ends has no more. A job that is not in a slot yet ends as soon as it would start.
func (r *run) requestEnd(o wire.Outcome) { r.endBy(func() { r.end(o) }) }

// endBy calls what ends the job. If that panics, its stub ends it.
func (r *run) endBy(f func()) {
	if fault.Do(r.s.config.Log, "ending a job", f, "job", r.id) {
		fault.With(&r.mu, func() {
			if r.slot != nil {
				r.slot.HangUp()
			}
		})
	}
}

func (r *run) end(o wire.Outcome) {
	sl, first := r.beginEnd(o)
	if !first {
		return
	}
	defer close(r.endHandled)
	if sl != nil {
		r.endIn(sl, o)
	}
}

// endIn ends the job in its slot.
func (r *run) endIn(sl *cell.Slot, o wire.Outcome) {
	if leavesTime(o) && r.endLater(sl) {
		sl.Signal(wire.Signal{Number: uint8(unix.SIGTERM), Everyone: true, Ends: true})
	} else {
		sl.Kill()
	}
}

// leavesTime reports whether a job that ends with outcome o has Limits.KillAfter to end by itself. Others could go on using too much.
func leavesTime(o wire.Outcome) bool {
	return o == wire.Deadline || o == wire.Killed || o == wire.Stopped
}

// beginEnd sets the outcome, unless one was set before, and returns the slot in which the job has started, if it has.
func (r *run) beginEnd(o wire.Outcome) (sl *cell.Slot, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !leavesTime(o) {
		r.hurry(0)
	}
	if r.outcome != 0 {
		return nil, false
	}
	r.outcome, r.requested = o, true
	return r.slot, true
}

// ask ends the job with outcome o on a client's request. The second request, or one after a signal that was to end the job, kills it.
func (r *run) ask(o wire.Outcome) {
	fault.With(&r.mu, func() {
		if r.asked {
			r.hurry(0)
		}
		r.asked = true
	})
	go r.requestEnd(o) // without cgroup.kill ending takes time, and the client has other requests
}

// hurry leaves the job no more than patience to end by itself. The caller holds r.mu.
func (r *run) hurry(patience time.Duration) {
	if patience >= r.patience {
		return
	}
	r.patience = patience
	if r.grace != nil && r.grace.Stop() {
		r.grace.Reset(patience)
	}
}

// endLater has the job killed when its time to end by itself has passed, unless that is the case already. It returns false if the
// job is over.
func (r *run) endLater(sl *cell.Slot) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return false
	}
	r.killAfter(r.limits.KillAfter, sl)
	return true
}

// lastPatience is how long the stub may take to end the processes that a job left running.
const lastPatience = 100 * time.Millisecond

// killLater has what the first process has left killed after lastPatience, in which the stub kills it, or after Limits.KillAfter if all
// processes got a signal by which they end; unless the job was told to end, and has its time.
func (r *run) killLater(sl *cell.Slot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	patience := lastPatience
	if r.told {
		patience = r.limits.KillAfter
	}
	r.killAfter(patience, sl)
}

// killAfter has the job killed after patience, or earlier as hurry says, unless its time has begun before. The caller holds r.mu.
func (r *run) killAfter(patience time.Duration, sl *cell.Slot) {
	if r.grace != nil {
		return
	}
	r.grace = time.AfterFunc(min(patience, r.patience), func() {
		defer close(r.graceDone)
		r.setOutcome(wire.Killed)
		r.endBy(sl.Kill)
	})
}

// endGrace returns true if grace would still have killed the job. When it returns, grace does not use the slot.
func (r *run) endGrace() (pending bool) {
	timer := fault.Get(&r.mu, func() *time.Timer {
		t := r.grace
		r.grace = nil
		return t
	})
	if timer == nil {
		return false
	}
	if pending = timer.Stop(); !pending {
		<-r.graceDone
	}
	return pending
}

// contain calls what another goroutine than the job's own does for the job. If that panics, the job ends.
func (r *run) contain(what string, f func()) {
	if fault.Do(r.s.config.Log, what, f, "job", r.id) {
		r.requestEnd(wire.Vanished)
	}
}

// Signal queues a signal for the job. If the queue is full the signal is dropped, as the kernel drops a pending
// signal of the same kind.
func (r *run) Signal(s wire.Signal) {
	if s.Number == 0 {
		r.ask(wire.Killed)
		return
	}
	select {
	case r.signals <- s:
	default:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = r.asked || s.Ends
	r.startForwarding()
}

// startForwarding starts forwardSignals once there are both a slot and a queued signal. The caller holds r.mu.
func (r *run) startForwarding() {
	if r.slot == nil || r.forwarding || len(r.signals) == 0 {
		return
	}
	r.forwarding = true
	sl := r.slot
	go r.contain("signals of a job", func() { r.forwardSignals(sl) })
}

// forwardSignals sends the queued signals to the stub, in order, until the job is over.
func (r *run) forwardSignals(sl *cell.Slot) {
	for {
		select {
		case s := <-r.signals:
			if s.Ends {
				r.endLater(sl)
			}
			if s.Everyone && mayEnd(s.Number) {
				s.Ends = true
				fault.With(&r.mu, func() { r.told = true })
			}
			sl.Signal(s)
		case <-r.done:
			return
		}
	}
}

// mayEnd reports whether programs usually end by the signal, once they have tidied up.
func mayEnd(number uint8) bool {
	return slices.Contains([]unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT}, unix.Signal(number))
}

// starts notes that the job is started now.
func (r *run) starts() {
	fault.With(&r.mu, func() { r.early = r.outcome != 0 })
}

// setSlot records the slot in which the job has started. From now on requestEnd ends it there. If an outcome is already set, it is ended
// now: at once, unless that was requested since it started.
func (r *run) setSlot(sl *cell.Slot) {
	early := false
	o := fault.Get(&r.mu, func() wire.Outcome {
		r.slot, early = sl, r.early
		r.startForwarding()
		return r.outcome
	})
	switch {
	case o == 0:
	case early:
		sl.Kill()
	default:
		r.endIn(sl, o)
	}
}

// finish returns why the job ended, which is an outcome that was set, or else that its watch was broken off. If another goroutine requested
// the end, finish first waits until that goroutine no longer uses the slot. It may be called again. endGrace must be called after it.
func (r *run) finish() wire.Outcome {
	r.setOutcome(wire.Vanished)
	if fault.Get(&r.mu, func() bool { return r.requested }) {
		<-r.endHandled
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		r.over = true
		close(r.done)
	}
	r.slot = nil // usage must not read the slot's cgroup once it is released
	return r.outcome
}

// usageInterval is how old the usage of a job in a list can be: a user who lists jobs in a loop causes no more readings.
const usageInterval = 200 * time.Millisecond

// usage returns the CPU time in nanoseconds of the job so far, and its peak memory and its memory now in bytes, -1 where unknown.
func (r *run) usage() (cpu, peak, memory int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.slot == nil && r.usageAt.IsZero():
		return -1, -1, -1
	case r.slot != nil && time.Since(r.usageAt) >= usageInterval:
		r.cpu, r.peak, r.memory = r.slot.Usage()
		r.usageAt = time.Now()
	}
	return r.cpu, r.peak, r.memory
}

// command opens the command line of the job; nil: it is not in a slot, or has just ended.
func (r *run) command() *os.File {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.slot == nil {
		return nil
	}
	f, _ := r.slot.Command() // a list has no room for why
	return f
}

// clientless is how long a job has at most to end by itself when its client has gone: enough to remove a lock, and nobody waits for more.
const clientless = 500 * time.Millisecond

// endOn ends the job at its deadline or when ctx ends, whichever is first, until stop is called.
func (s *Supervisor) endOn(ctx context.Context, r *run) (stop func()) {
	stopDeadline := func() {}
	if r.limits.Wall != job.Unlimited && !inside.Skips(s.config.switches.Skip, inside.Deadline) {
		timer := time.AfterFunc(r.limits.Wall, func() { r.requestEnd(wire.Deadline) })
		stopDeadline = func() { timer.Stop() }
	}
	stopContext := context.AfterFunc(ctx, func() {
		fault.With(&r.mu, func() { r.hurry(clientless) })
		r.requestEnd(s.endReason())
	})
	return func() {
		stopDeadline()
		stopContext()
	}
}
