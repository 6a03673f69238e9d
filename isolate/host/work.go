package host

import (
	"sync"

	"corral/internal/fault"
)

// Work counts pieces of work that the supervisor waits for when it ends. The zero value is ready to use.
type Work struct {
	mu    fault.Mutex
	ended bool // guarded by mu
	group sync.WaitGroup
}

// Begin registers a piece of work, which ends with Done. It returns false if End was called.
func (w *Work) Begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return false
	}
	w.group.Add(1)
	return true
}

// Done ends a piece of work.
func (w *Work) Done() { w.group.Done() }

// End makes Begin return false from now on.
func (w *Work) End() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
}

// Wait waits until all registered work is done. End must have been called.
func (w *Work) Wait() { w.group.Wait() }
