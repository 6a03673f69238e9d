package ctxtools

import (
	"context"
	"sync"
)

// turns serializes the indexing of each artifact.
type turns struct {
	mu  sync.Mutex
	all map[string]chan struct{} // guarded by mu: each is closed when the current holder is done
}

// Acquire waits for its turn at an artifact. The caller must call done.
func (t *turns) Acquire(ctx context.Context, handle string) (done func(), err error) {
	mine := make(chan struct{})
	for {
		t.mu.Lock()
		other := t.all[handle]
		if other == nil {
			if t.all == nil {
				t.all = map[string]chan struct{}{}
			}
			t.all[handle] = mine
			t.mu.Unlock()
			return func() { t.release(handle, mine) }, nil
		}
		t.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (t *turns) release(handle string, mine chan struct{}) {
	t.mu.Lock()
	delete(t.all, handle)
	t.mu.Unlock()
	close(mine)
}
