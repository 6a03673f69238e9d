// Package backlog bounds how much output is indexed or waits for it, in total and for each knowledge base.
package backlog

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
	// MaxRunning is the maximum number of outputs indexed at once.
	MaxRunning = 2
	// maxAll is the maximum number of outputs being indexed or queued.
	maxAll = 64
	// MaxEach is the same for one knowledge base.
	MaxEach = 16
	// settleTimeout is how long a search waits for indexing that began before it, and Close for all indexing.
	settleTimeout = 5 * time.Second
)

// Reasons why Run refuses an output.
var (
	ErrFull         = errors.New("the indexing backlog is full; runtime_query_output with match fuzzy indexes the output on request")
	ErrShuttingDown = errors.New("the server is shutting down")
)

// Backlog holds the outputs that are being indexed or queued. Their number is bounded, in total and per knowledge
// base.
type Backlog struct {
	ctx   context.Context
	stop  context.CancelCauseFunc
	slots chan struct{} // acquired while indexing
	work  sync.WaitGroup
	// Settle is how long a search waits for indexing that began before it, and Close for all indexing. New sets 5 s.
	Settle time.Duration
	// Stop is how long Close waits for the end of what it has canceled. New sets 2.5 s.
	Stop time.Duration

	mu     sync.Mutex
	closed bool                           // guarded by mu
	all    map[index.Base]map[*Entry]bool // guarded by mu
	n      int                            // guarded by mu
}

// A Entry is one output that is being indexed or queued.
type Entry struct {
	base   index.Base
	Cancel context.CancelCauseFunc
	Done   chan struct{} // closed when the output can be found, or indexing failed
}

// New returns an empty backlog. The owner must call close.
func New() *Backlog {
	p := &Backlog{
		Settle: settleTimeout, Stop: settleTimeout / 2, slots: make(chan struct{}, MaxRunning), all: map[index.Base]map[*Entry]bool{},
	}
	p.ctx, p.stop = context.WithCancelCause(context.Background())
	return p
}

// Run calls f in a new goroutine when a slot is free. f's context has the values of ctx but not its cancellation; it ends
// when the server shuts down or the knowledge base is purged, possibly before f is called. If Run returns an error,
// ErrFull or ErrShuttingDown, f is not called.
func (p *Backlog) Run(ctx context.Context, b index.Base, f func(context.Context)) (*Entry, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed || p.ctx.Err() != nil:
		return nil, ErrShuttingDown
	case p.n >= maxAll, len(p.all[b]) >= MaxEach:
		return nil, ErrFull
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	q := &Entry{base: b, Cancel: cancel, Done: make(chan struct{})}
	if p.all[b] == nil {
		p.all[b] = map[*Entry]bool{}
	}
	p.all[b][q] = true
	p.n++
	p.work.Go(func() {
		defer p.end(q)
		defer cancel(nil)
		defer context.AfterFunc(p.ctx, func() { cancel(ErrShuttingDown) })()
		select {
		case p.slots <- struct{}{}:
			defer func() { <-p.slots }()
		case <-ctx.Done():
		}
		f(ctx)
	})
	return q, nil
}

func (p *Backlog) end(q *Entry) {
	p.mu.Lock()
	if delete(p.all[q.base], q); len(p.all[q.base]) == 0 {
		delete(p.all, q.base)
	}
	p.n--
	p.mu.Unlock()
	close(q.Done)
}

// of returns the entries of a knowledge base.
func (p *Backlog) of(b index.Base) []*Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.all[b]))
}

// Count returns how many outputs are being indexed or queued for a knowledge base.
func (p *Backlog) Count(b index.Base) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all[b])
}

// Wait waits for the current entries of a knowledge base, at most p.settle.
func (p *Backlog) Wait(ctx context.Context, b index.Base) { await(ctx, p.of(b), p.Settle) }

// Drop cancels the current entries of a knowledge base and waits for them, at most p.settle. What was indexed
// partly is removed again.
func (p *Backlog) Drop(ctx context.Context, b index.Base) {
	all := p.of(b)
	for _, q := range all {
		q.Cancel(index.ErrPurged)
	}
	await(ctx, all, p.Settle)
}

func await(ctx context.Context, all []*Entry, timeout time.Duration) {
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
func (p *Backlog) Close(before func()) bool {
	timer := time.AfterFunc(p.Settle, func() { p.stop(ErrShuttingDown) })
	defer p.stop(ErrShuttingDown)
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
