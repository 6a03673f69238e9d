package job

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestQueueRefuses(t *testing.T) {
	q := NewQueue(2, 5, 0)
	var leaves []func()
	for range 2 {
		leave, err := q.Enter(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	if _, err := q.Enter(t.Context(), 0); !denies(err, "concurrency") || err.Error() != "Concurrency limit reached (2/2 active jobs)" {
		t.Errorf("a third job, without waiting: %v", err)
	}
	if got, want := q.Load(), (Load{Running: 2, MaxRunning: 2, MaxWaiting: 5}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	leaves[0]()
	leave, err := q.Enter(t.Context(), 0)
	if err != nil {
		t.Fatalf("after one job ended: %v", err)
	}
	leave()
	leaves[1]()
	if active, waiting := counts(q); active != 0 || waiting != 0 {
		t.Errorf("%d active, %d waiting at the end", active, waiting)
	}
}

// TestQueueOrder: waiters run in the order of arrival, and no more than the maximum wait.
func TestQueueOrder(t *testing.T) {
	const waiting = 4
	q := NewQueue(1, waiting, time.Hour)
	first, err := q.Enter(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	order := make(chan int, waiting)
	var all sync.WaitGroup
	for i := range waiting {
		all.Go(func() {
			leave, err := q.Enter(t.Context(), 0)
			if err != nil {
				t.Error(err)
				return
			}
			order <- i
			leave()
		})
		for {
			if _, n := counts(q); n == i+1 {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	if _, err := q.Enter(t.Context(), 0); !denies(err, "concurrency") {
		t.Errorf("one waiter above the maximum: %v", err)
	}
	first()
	all.Wait()
	for i := range waiting {
		if got := <-order; got != i {
			t.Errorf("turn %d went to waiter %d", i, got)
		}
	}
}

func TestQueuePatience(t *testing.T) {
	q := NewQueue(1, 1, time.Millisecond)
	leave, err := q.Enter(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Enter(t.Context(), 0); !denies(err, "concurrency") {
		t.Errorf("maximum wait expired: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := taken(t).Enter(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	leave()
	if _, waiting := counts(q); waiting != 0 {
		t.Errorf("%d waiting", waiting)
	}
}

// denies reports whether an error is that of a rule.
func denies(err error, rule string) bool {
	r, ok := errors.AsType[reached](err)
	return ok && r.rule == rule
}

// counts returns the number of running jobs and the number of waiters.
func counts(q *Queue) (active, waiting int) {
	l := q.Load()
	return l.Running, l.Waiting
}

// taken returns a full queue whose waiters wait for an hour.
func taken(t *testing.T) *Queue {
	t.Helper()
	q := NewQueue(1, 1, time.Hour)
	if _, err := q.Enter(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	return q
}

// TestQueueRace: capacity is neither lost nor granted twice while waiters give up at any time.
func TestQueueRace(t *testing.T) {
	const running = 3
	q := NewQueue(running, 50, 100*time.Microsecond)
	var inside, entered atomic.Int64
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			leave, err := q.Enter(t.Context(), 0)
			if err != nil {
				return
			}
			if n := inside.Add(1); n > running {
				t.Errorf("%d jobs at once", n)
			}
			entered.Add(1)
			inside.Add(-1)
			leave()
		})
	}
	all.Wait()
	if active, waiting := counts(q); active != 0 || waiting != 0 || entered.Load() == 0 {
		t.Errorf("%d active, %d waiting, %d entered", active, waiting, entered.Load())
	}
}

// TestQueueWait: a caller that is ready to wait does so in a queue in which nobody waits, up to the queue's length.
func TestQueueWait(t *testing.T) {
	q := NewQueue(1, 1, 0)
	leave, err := q.Enter(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	entered := make(chan error, 1)
	go func() {
		leave, err := q.Enter(t.Context(), time.Hour)
		if err == nil {
			leave()
		}
		entered <- err
	}()
	for q.Load().Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	if _, err := q.Enter(t.Context(), 0); !denies(err, "concurrency") {
		t.Errorf("without a wait: %v", err)
	}
	leave()
	if err := <-entered; err != nil {
		t.Error(err)
	}
}
