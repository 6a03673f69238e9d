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
	// maxRunning is the maximum number of outputs indexed at once.
	maxRunning = 2
	// maxAll is the maximum number of outputs being indexed or queued.
	maxAll = 64
	// maxEach is the same for one knowledge base.
	maxEach = 16
	// settleTimeout is how long a search waits for indexing that began before it, and Close for all indexing.
	settleTimeout = 5 * time.Second
)

// Reasons why Run refuses an output.
var (
	errFull         = errors.New("the indexing backlog is full; runtime_query_output with match fuzzy indexes the output on request")
	errShuttingDown = errors.New("the server is shutting down")
)

// backlog holds the outputs that are being indexed or queued. Their number is bounded, in total and per knowledge
// base.
type backlog struct {
	ctx   context.Context
	stop  context.CancelCauseFunc
	slots chan struct{} // acquired while indexing
	work  sync.WaitGroup
	// Settle is how long a search waits for indexing that began before it, and Close for all indexing. newBacklog sets 5 s.
	Settle time.Duration
	// Stop is how long Close waits for the end of what it has canceled. newBacklog sets 2.5 s.
	Stop time.Duration

	mu     sync.Mutex
	closed bool                            // guarded by mu
	all    map[index.Base]map[*queued]bool // guarded by mu
	n      int                             // guarded by mu
}

// A queued is one output that is being indexed or queued.
type queued struct {
	base   index.Base
	Cancel context.CancelCauseFunc
	Done   chan struct{} // closed when the output can be found, or indexing failed
}

// newBacklog returns an empty backlog. The owner must call close.
func newBacklog() *backlog {
	p := &backlog{
		Settle: settleTimeout, Stop: settleTimeout / 2, slots: make(chan struct{}, maxRunning), all: map[index.Base]map[*queued]bool{},
	}
	p.ctx, p.stop = context.WithCancelCause(context.Background())
	return p
}

// Run calls f in a new goroutine when a slot is free. f's context has the values of ctx but not its cancellation; it ends
// when the server shuts down or the knowledge base is purged, possibly before f is called. If Run returns an error,
// errFull or errShuttingDown, f is not called.
func (p *backlog) Run(ctx context.Context, b index.Base, f func(context.Context)) (*queued, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed || p.ctx.Err() != nil:
		return nil, errShuttingDown
	case p.n >= maxAll, len(p.all[b]) >= maxEach:
		return nil, errFull
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	q := &queued{base: b, Cancel: cancel, Done: make(chan struct{})}
	if p.all[b] == nil {
		p.all[b] = map[*queued]bool{}
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

func (p *backlog) end(q *queued) {
	p.mu.Lock()
	if delete(p.all[q.base], q); len(p.all[q.base]) == 0 {
		delete(p.all, q.base)
	}
	p.n--
	p.mu.Unlock()
	close(q.Done)
}

// of returns the entries of a knowledge base.
func (p *backlog) of(b index.Base) []*queued {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.all[b]))
}

// Count returns how many outputs are being indexed or queued for a knowledge base.
func (p *backlog) Count(b index.Base) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all[b])
}

// Wait waits for the current entries of knowledge bases, at most p.Settle for all of them together.
func (p *backlog) Wait(ctx context.Context, bases ...index.Base) {
	var all []*queued
	for _, b := range bases {
		all = append(all, p.of(b)...)
	}
	await(ctx, all, p.Settle)
}

// Drop cancels the current entries of a knowledge base and waits for them, at most p.settle. What was indexed
// partly is removed again.
func (p *backlog) Drop(ctx context.Context, b index.Base) {
	all := p.of(b)
	for _, q := range all {
		q.Cancel(index.ErrPurged)
	}
	await(ctx, all, p.Settle)
}

func await(ctx context.Context, all []*queued, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, q := range all {
		select {
		case <-q.Done:
		case <-ctx.Done():
			return
		}
	}
}

// Close calls before, waits for all entries and, p.Settle after Close was called, cancels the rest. It reports whether all
// have ended: entries that do not react to cancellation within p.Stop are left behind.
func (p *backlog) Close(before func()) bool {
	timer := time.AfterFunc(p.Settle, func() { p.stop(errShuttingDown) })
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
	last := time.NewTimer(p.Stop)
	defer last.Stop()
	select {
	case <-ended:
		return true
	case <-last.C:
		return false
	}
}
