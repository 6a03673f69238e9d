package ctxtools

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"corral/store/index"
)

const (
	// maxIndexing is the maximum number of outputs indexed at once.
	maxIndexing = 2
	// maxIndexBacklog is the maximum number of outputs being indexed or queued; maxIndexBacklogEach is the
	// maximum of one knowledge base.
	maxIndexBacklog     = 64
	maxIndexBacklogEach = 16
	// settleTimeout is how long a search waits for indexing that began before it, and Close for all indexing.
	settleTimeout = 5 * time.Second
)

// Reasons why an output is not indexed, or not yet.
var (
	errBacklogFull  = errors.New("the indexing backlog is full; runtime_query_output with match fuzzy indexes the output on request")
	errShuttingDown = errors.New("the server is shutting down")
)

// backlog holds the outputs that are being indexed or queued. Their number is bounded, in total and per knowledge
// base.
type backlog struct {
	ctx   context.Context
	stop  context.CancelCauseFunc
	slots chan struct{} // acquired while indexing
	work  sync.WaitGroup
	// settle is settleTimeout, or less in tests.
	settle time.Duration

	mu     sync.Mutex
	closed bool                             // guarded by mu
	all    map[index.Base]map[*pending]bool // guarded by mu
	n      int                              // guarded by mu
}

// A pending is one output that is being indexed or queued.
type pending struct {
	base   index.Base
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the output can be found, or indexing failed
}

// newBacklog returns an empty backlog. The owner must call close.
func newBacklog() *backlog {
	p := &backlog{settle: settleTimeout, slots: make(chan struct{}, maxIndexing), all: map[index.Base]map[*pending]bool{}}
	p.ctx, p.stop = context.WithCancelCause(context.Background())
	return p
}

// run calls f in a new goroutine when a slot is free. f's context has the values of ctx but not its cancellation; it ends
// when the server shuts down or the knowledge base is purged, possibly before f is called. If run returns an error,
// errBacklogFull or errShuttingDown, f is not called.
func (p *backlog) run(ctx context.Context, b index.Base, f func(context.Context)) (*pending, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed || p.ctx.Err() != nil:
		return nil, errShuttingDown
	case p.n >= maxIndexBacklog, len(p.all[b]) >= maxIndexBacklogEach:
		return nil, errBacklogFull
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	q := &pending{base: b, cancel: cancel, done: make(chan struct{})}
	if p.all[b] == nil {
		p.all[b] = map[*pending]bool{}
	}
	p.all[b][q] = true
	p.n++
	p.work.Go(func() {
		defer p.end(q)
		defer cancel(nil)
		defer context.AfterFunc(p.ctx, func() { cancel(errShuttingDown) })()
		select {
		case p.slots <- struct{}{}:
			defer func() { <-p.slots }()
		case <-ctx.Done():
		}
		f(ctx)
	})
	return q, nil
}

func (p *backlog) end(q *pending) {
	p.mu.Lock()
	if delete(p.all[q.base], q); len(p.all[q.base]) == 0 {
		delete(p.all, q.base)
	}
	p.n--
	p.mu.Unlock()
	close(q.done)
}

// of returns the entries of a knowledge base.
func (p *backlog) of(b index.Base) []*pending {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.all[b]))
}

// count returns how many outputs are being indexed or queued for a knowledge base.
func (p *backlog) count(b index.Base) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all[b])
}

// wait waits for the current entries of a knowledge base, at most p.settle.
func (p *backlog) wait(ctx context.Context, b index.Base) { await(ctx, p.of(b), p.settle) }

// drop cancels the current entries of a knowledge base and waits for them, at most p.settle. What was indexed
// partly is removed again.
func (p *backlog) drop(ctx context.Context, b index.Base) {
	all := p.of(b)
	for _, q := range all {
		q.cancel(index.ErrPurged)
	}
	await(ctx, all, p.settle)
}

func await(ctx context.Context, all []*pending, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, q := range all {
		select {
		case <-q.done:
		case <-ctx.Done():
			return
		}
	}
}

// close calls before, waits for all entries and, p.settle after close was called, cancels the rest. It reports whether all
// have ended: entries that do not react to cancellation within p.settle/2 are left behind.
func (p *backlog) close(before func()) bool {
	timer := time.AfterFunc(p.settle, func() { p.stop(errShuttingDown) })
	defer p.stop(errShuttingDown)
	defer timer.Stop()
	before()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.work.Wait()
	}()
	select {
	case <-ended:
		return true
	case <-p.ctx.Done():
	}
	last := time.NewTimer(p.settle / 2)
	defer last.Stop()
	select {
	case <-ended:
		return true
	case <-last.C:
		return false
	}
}
