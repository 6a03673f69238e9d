package job

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A Queue bounds how many jobs run at once, and how many wait for one to end. Requests are served in order of
// arrival. A nil *Queue bounds nothing.
type Queue struct {
	running, waiting int
	maxWait          time.Duration

	mu      sync.Mutex
	active  int             // guarded by mu
	waiters []chan struct{} // guarded by mu, longest waiting first; a channel is closed when its waiter may run
}

// NewQueue returns a Queue that lets running jobs run at once (at least 1) and waiting more wait, each for at most
// maxWait or what Enter is given. If both are zero, Enter refuses at once without capacity.
func NewQueue(running, waiting int, maxWait time.Duration) *Queue {
	return &Queue{running: max(running, 1), waiting: waiting, maxWait: max(maxWait, 0)}
}

// A Load is the use of a Queue at one time.
type Load struct {
	Running, MaxRunning int // jobs that run, and how many may
	Waiting, MaxWaiting int // jobs that wait, and how many may
}

// Load returns the use of the queue now: zero for a nil *Queue.
func (q *Queue) Load() Load {
	if q == nil {
		return Load{}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return Load{q.active, q.running, len(q.waiters), q.waiting}
}

// reached is the error for a request above a limit of the operator: the rule that denies it, and the reason as the protocols word it.
type reached struct{ rule, reason string }

func (r reached) Error() string { return r.reason }

func full(active, running int) error {
	return reached{"concurrency", fmt.Sprintf("Concurrency limit reached (%d/%d active jobs)", active, running)}
}

// Enter waits until a job may run, for as long as the queue lets all wait, or for wait if that is longer; leave must be
// called once when the job has ended. The error is a reached or that of ctx.
func (q *Queue) Enter(ctx context.Context, wait time.Duration) (leave func(), err error) {
	if q == nil {
		return func() {}, ctx.Err()
	}
	wait = max(wait, q.maxWait)
	mine, err := q.join(wait)
	if err != nil || mine == nil {
		return q.leave, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-mine:
		return q.leave, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = full(q.running, q.running)
	}
	if q.quit(mine) {
		return nil, err
	}
	return q.leave, nil // capacity was granted at the same moment
}

// join takes free capacity and returns nil, or queues up and returns the waiter's channel. With wait 0 it does not queue up.
func (q *Queue) join(wait time.Duration) (chan struct{}, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.active < q.running {
		q.active++
		return nil, nil
	}
	if wait <= 0 || len(q.waiters) >= q.waiting {
		return nil, full(q.active, q.running)
	}
	mine := make(chan struct{})
	q.waiters = append(q.waiters, mine)
	return mine, nil
}

// quit stops waiting. It returns false if the capacity had already been granted.
func (q *Queue) quit(mine chan struct{}) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiters, mine)
	if i < 0 {
		return false
	}
	q.waiters = slices.Delete(q.waiters, i, i+1)
	return true
}

// leave passes the capacity on to the longest waiter, or frees it.
func (q *Queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiters) == 0 {
		q.active--
		return
	}
	close(q.waiters[0])
	q.waiters = slices.Delete(q.waiters, 0, 1)
}
