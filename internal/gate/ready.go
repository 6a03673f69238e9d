package gate

import (
	"sync"
	"sync/atomic"
	"time"
)

// readyInterval is the time for which an answer of ready holds: anybody may ask, however often.
const readyInterval = time.Second

// A Readiness remembers whether a server can serve calls, for clients that have not authenticated.
type Readiness struct {
	ready func() error

	mu sync.Mutex
	at time.Time   // guarded by mu: when ready was called last
	ok atomic.Bool // what it returned
}

// NewReadiness returns a Readiness of a server that is ready if ready returns nil. ready is called at most once per second, and
// not concurrently. A server without it is always ready.
func NewReadiness(ready func() error) *Readiness {
	if ready == nil {
		ready = func() error { return nil }
	}
	return &Readiness{ready: ready}
}

// Is reports whether the server is ready. One caller at a time waits for ready; others get the former answer meanwhile.
func (r *Readiness) Is() bool {
	if r.mu.TryLock() {
		defer r.mu.Unlock()
		if time.Since(r.at) >= readyInterval {
			r.ok.Store(r.ready() == nil)
			r.at = time.Now()
		}
	}
	return r.ok.Load()
}
