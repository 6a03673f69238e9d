package isolate

import (
	"context"
	"sync"
	"time"

	"corral/isolate/inside"
	"corral/isolate/wire"
	"corral/job"
)

// A run is a live job.
type run struct {
	id      string
	peer    Peer
	repo    string    // guarded by Supervisor.mu while it is listed; set before the job begins
	started time.Time // likewise
	limits  job.Limits
	protect job.Protection
	decided uint64           // of the record in the audit log; 0 as long as there is none
	orders  chan wire.Signal // that are still to be sent
	over    chan struct{}    // closed when the job has ended
	ended   chan struct{}    // closed when who asked for the end is done with that

	mu      sync.Mutex
	outcome wire.Outcome // guarded by mu: why it ends, as soon as that is settled
	slot    *slot        // guarded by mu: where it runs
	obeys   bool         // guarded by mu: obey runs
}

// newRun names a job of peer's, which can be signaled from now on.
func (s *Supervisor) newRun(peer Peer) *run {
	return &run{
		id: s.name("job-"), peer: peer,
		orders: make(chan wire.Signal, 8), over: make(chan struct{}), ended: make(chan struct{}),
	}
}

// settle notes why the job ends, and says whether that was open yet.
func (r *run) settle(o wire.Outcome) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.outcome != 0 {
		return false
	}
	r.outcome = o
	return true
}

// ask brings about the job's end, if that is not settled yet. One that does not run yet ends when it would begin.
func (r *run) ask(o wire.Outcome) {
	if !r.settle(o) {
		return
	}
	r.mu.Lock()
	sl := r.slot
	r.mu.Unlock()
	if sl != nil {
		sl.kill()
	}
	close(r.ended)
}

// order passes on a signal. Signals that a job does not take in time are dropped, as pending signals of one kind are.
func (r *run) order(s wire.Signal) {
	if s.Number == 0 {
		go r.ask(wire.Killed) // without cgroup.kill that takes its time, and who asks has other jobs
		return
	}
	select {
	case r.orders <- s:
	default:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.startObeying()
}

// startObeying starts obey, once there is a slot and an order. The caller holds r.mu.
func (r *run) startObeying() {
	if r.slot == nil || r.obeys || len(r.orders) == 0 {
		return
	}
	r.obeys = true
	go r.obey(r.slot)
}

// obey sends the orders to the stub, in their turn, until the job is over.
func (r *run) obey(sl *slot) {
	for {
		select {
		case s := <-r.orders:
			_ = sl.stub.Send(inside.Order{Signal: int(s.Number), Everyone: s.Everyone}.Append())
		case <-r.over:
			return
		}
	}
}

// begin says that the job is in its slot: from here on it can be ended there, and if it is to end already, it is.
func (r *run) begin(sl *slot) {
	r.mu.Lock()
	r.slot = sl
	late := r.outcome != 0
	r.startObeying()
	r.mu.Unlock()
	if late {
		sl.kill()
	}
}

// finish returns why the job ended. Nobody uses its slot in its name any more: who asked for the end has done so.
func (r *run) finish(mine bool) wire.Outcome {
	if !mine {
		<-r.ended
	}
	close(r.over)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outcome
}

// after calls f after a time, unless it is stopped before. Stopping waits for an f under way.
func after(d time.Duration, f func()) (stop func()) {
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

// with ends the job at its deadline, and with ctx, until it is stopped.
func (s *Supervisor) with(ctx context.Context, r *run) (stop func()) {
	stopDeadline := func() {}
	if r.limits.Wall != job.Unlimited {
		timer := time.AfterFunc(r.limits.Wall, func() { r.ask(wire.Deadline) })
		stopDeadline = func() { timer.Stop() }
	}
	stopContext := context.AfterFunc(ctx, func() { r.ask(s.whyDone()) })
	return func() {
		stopDeadline()
		stopContext()
	}
}
