package isolate

import (
	"corral/internal/fault"
)

// rounds runs a function for callers that all want the same work done after they asked. At most one round runs and one
// waits: everybody who asks while a round runs shares the next one, because the running one may have read something that
// was changed since. So any number of callers costs no more than one round after another.
type rounds[T any] struct {
	run func() (T, error)

	mu   fault.Mutex
	busy bool      // guarded by mu: a round runs
	next *round[T] // guarded by mu: waits for the running one; nil if nobody asked
}

type round[T any] struct {
	done  chan struct{} // closed when the round has ended
	value T
	err   error
}

// newRounds returns rounds of run, which is never called concurrently.
func newRounds[T any](run func() (T, error)) *rounds[T] { return &rounds[T]{run: run} }

// Do returns the result of a round that began after Do was called.
func (r *rounds[T]) Do() (T, error) {
	if mine := r.join(); mine != nil {
		<-mine.done
		return mine.value, mine.err
	}
	defer r.follow()
	return r.run()
}

// join returns the round that waits for the running one, or nil if none runs: then the caller runs one.
func (r *rounds[T]) join() *round[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.busy:
		r.busy = true
		return nil
	case r.next == nil:
		r.next = &round[T]{done: make(chan struct{})}
	}
	return r.next
}

// follow starts the round that waits, if there is one. It does not run in the caller's goroutine, which has its result.
func (r *rounds[T]) follow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.next
	r.next = nil
	if next == nil {
		r.busy = false
		return
	}
	go func() {
		next.value, next.err = r.run()
		close(next.done)
		r.follow()
	}()
}
