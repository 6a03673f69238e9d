package isolate

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

// TestRounds: each caller gets the result of a round that began after it asked; rounds do not overlap; callers who ask
// during a round share the next one.
func TestRounds(t *testing.T) {
	var running, began atomic.Int64
	gate := make(chan struct{})
	r := newRounds(func() (int64, error) {
		if running.Add(1) != 1 {
			t.Error("two rounds at once")
		}
		n := began.Add(1)
		<-gate
		running.Add(-1)
		return n, nil
	})
	first := make(chan int64)
	go func() {
		n, _ := r.Do()
		first <- n
	}()
	for began.Load() == 0 { // the first round runs, and is held by gate
		r.mu.Lock()
		r.mu.Unlock() //nolint:staticcheck // only to let the other goroutine run
	}
	const callers = 50
	var wg sync.WaitGroup
	results := make(chan int64, callers)
	for range callers {
		wg.Go(func() {
			n, _ := r.Do()
			results <- n
		})
	}
	for waiting := false; !waiting; {
		r.mu.Lock()
		waiting = r.next != nil
		r.mu.Unlock()
	}
	gate <- struct{}{}
	if n := <-first; n != 1 {
		t.Errorf("the first caller got round %d", n)
	}
	close(gate)
	wg.Wait()
	for range callers {
		if n := <-results; n < 2 {
			t.Errorf("a caller who asked during round 1 got the result of round %d", n)
		}
	}
	if n, err := r.Do(); err != nil || n != began.Load() { // and it is ready for more
		t.Errorf("%d, %v", n, err)
	}
}

// TestRoundsError: a failed round fails for those who share it, and not for later ones.
func TestRoundsError(t *testing.T) {
	fail := true
	r := newRounds(func() (string, error) {
		if fail {
			return "", errors.New("faulty")
		}
		return "done", nil
	})
	if _, err := r.Do(); err == nil {
		t.Error("no error")
	}
	fail = false
	if s, err := r.Do(); err != nil || s != "done" {
		t.Errorf("%q, %v", s, err)
	}
}
