package isolate

import (
	"cmp"
	"context"
	"crypto/rand"
	"os"
	"strings"
	"sync"
	"time"

	"corral/isolate/admit"
	"corral/isolate/cell"
	"corral/isolate/door"
	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/isolate/wire"
	"corral/job"
	"corral/store/audit/record"
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
	door       *door.Opening    // of the network of the job or its session, without the sockets and the authority; nil: it reaches no host
	variables  []string         // NAME=VALUE that the job gets unless its request sets them
	claim      job.Claim        // set before the run is registered
	decided    uint64           // sequence number of the decision in the audit log; 0 if none was written
	signals    chan wire.Signal // queue of signals to be forwarded
	done       chan struct{}    // closed when the job has ended
	endHandled chan struct{}    // closed when whoever requested the end no longer uses the slot

	mu         sync.Mutex
	outcome    wire.Outcome // guarded by mu: why the job ends; 0 until that is decided
	slot       *cell.Slot   // guarded by mu: where the job runs; nil before and afterwards
	cpu        int64        // guarded by mu: as usage read it last
	peak       int64        // guarded by mu: likewise
	memory     int64        // guarded by mu: likewise
	usageAt    time.Time    // guarded by mu: when that was
	forwarding bool         // guarded by mu: forwardSignals runs
}

// newJobID returns an id that no other job has. It tells nothing about others: numbers in a row would tell a user how many jobs all users
// run. Its 50 random bits keep a million jobs in an audit log apart.
func newJobID() string { return "job-" + strings.ToLower(rand.Text()[:10]) }

// newRun returns a run with a new id for a job of peer. It can be signaled from now on.
func (s *Supervisor) newRun(peer host.Peer) *run {
	return &run{
		s: s, id: newJobID(), peer: peer,
		signals: make(chan wire.Signal, 8), done: make(chan struct{}), endHandled: make(chan struct{}),
	}
}

// request returns the id of the job's request for the diagnostic log, with which the line of the front-end is found. It is a claim: a text
// of another form than front-ends send does not get into a log.
func (r *run) request() string {
	if !record.IsName(r.claim.Request) {
		return ""
	}
	return r.claim.Request
}

// connect records what the job may reach: all that the rules allow of what it, or its session, asked for.
func (r *run) connect(access admit.Access, o door.Opening) {
	r.door = &o
	r.network = cmp.Or(o.Ask, record.Allowed)
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

// requestEnd ends the job with outcome o, unless an outcome was set before. A job that is not in a slot yet ends as
// soon as it would start.
func (r *run) requestEnd(o wire.Outcome) {
	if !r.setOutcome(o) {
		return
	}
	r.mu.Lock()
	sl := r.slot
	r.mu.Unlock()
	if sl != nil {
		sl.Kill()
	}
	close(r.endHandled)
}

// Signal queues a signal for the job. If the queue is full the signal is dropped, as the kernel drops a pending
// signal of the same kind.
func (r *run) Signal(s wire.Signal) {
	if s.Number == 0 {
		go r.requestEnd(wire.Killed) // without cgroup.kill ending takes time, and the client has other requests
		return
	}
	select {
	case r.signals <- s:
	default:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.startForwarding()
}

// startForwarding starts forwardSignals once there are both a slot and a queued signal. The caller holds r.mu.
func (r *run) startForwarding() {
	if r.slot == nil || r.forwarding || len(r.signals) == 0 {
		return
	}
	r.forwarding = true
	go r.forwardSignals(r.slot)
}

// forwardSignals sends the queued signals to the stub, in order, until the job is over.
func (r *run) forwardSignals(sl *cell.Slot) {
	for {
		select {
		case s := <-r.signals:
			sl.Signal(s)
		case <-r.done:
			return
		}
	}
}

// setSlot records the slot in which the job starts. From now on requestEnd kills it there; if an outcome is already
// set, the job is killed at once.
func (r *run) setSlot(sl *cell.Slot) {
	r.mu.Lock()
	r.slot = sl
	late := r.outcome != 0
	r.startForwarding()
	r.mu.Unlock()
	if late {
		sl.Kill()
	}
}

// finish returns why the job ended. If the outcome was set by another goroutine (mine is false), finish first waits
// until that goroutine no longer uses the slot.
func (r *run) finish(mine bool) wire.Outcome {
	if !mine {
		<-r.endHandled
	}
	close(r.done)
	r.mu.Lock()
	defer r.mu.Unlock()
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

// runAfter calls f after d, unless stop is called before. stop waits for a call of f in progress.
func runAfter(d time.Duration, f func()) (stop func()) {
	done := make(chan struct{})
	timer := time.AfterFunc(d, func() {
		defer close(done)
		f()
	})
	return func() {
		if !timer.Stop() {
			<-done
		}
	}
}

// endOn ends the job at its deadline or when ctx ends, whichever is first, until stop is called.
func (s *Supervisor) endOn(ctx context.Context, r *run) (stop func()) {
	stopDeadline := func() {}
	if r.limits.Wall != job.Unlimited && !inside.Skips(s.config.skip, inside.Deadline) {
		timer := time.AfterFunc(r.limits.Wall, func() { r.requestEnd(wire.Deadline) })
		stopDeadline = func() { timer.Stop() }
	}
	stopContext := context.AfterFunc(ctx, func() { r.requestEnd(s.endReason()) })
	return func() {
		stopDeadline()
		stopContext()
	}
}
