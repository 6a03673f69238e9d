package page

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

const (
	// maxReading is the maximum number of requests that read stored output or the audit log at a time. A principal has one of them.
	maxReading = 2
	// readPatience is how long a request may read, and wait for others that do.
	readPatience = 20 * time.Second
)

// turns are those of requests that read a disk.
type turns struct {
	all chan struct{} // semaphore

	mu   sync.Mutex
	each map[string]chan struct{} // guarded by mu: semaphores by principal; principals are those of the configuration
}

func newTurns() *turns {
	return &turns{all: make(chan struct{}, maxReading), each: map[string]chan struct{}{}}
}

// of returns the semaphore of a principal.
func (t *turns) of(principal string) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.each[principal] == nil {
		t.each[principal] = make(chan struct{}, 1)
	}
	return t.each[principal]
}

// errTurn is returned for a request whose turn did not come.
var errTurn = errors.New("others are reading: try again")

// read calls f when it is the turn of a visitor's request to read a disk. The caller answers the request afterwards: a client that does
// not read its response takes no turn.
func (t *turns) read(r *http.Request, v *visitor, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(r.Context(), readPatience)
	defer cancel()
	for _, turn := range []chan struct{}{t.of(v.by.Principal), t.all} {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			return errTurn
		}
	}
	return f(ctx)
}
