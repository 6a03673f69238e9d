package mcp

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"corral/index"
)

const (
	// ctxIndexing is how many outputs are indexed at once.
	ctxIndexing = 2
	// ctxWaiting is how many outputs are indexed, or wait for that, at most; ctxWaitingEach is how many of one base.
	ctxWaiting     = 64
	ctxWaitingEach = 16
	// ctxSettle is how long a search waits for what was begun before it, and Close for all of it.
	ctxSettle = 5 * time.Second
	// ctxPatience is how long a reply waits for the index to have its own output.
	ctxPatience = 10 * time.Second
)

// Why an output is not indexed, or not yet.
var (
	errCrowded = errors.New("too much output waits to be indexed; runtime_query_output with match fuzzy indexes it when it is asked")
	errStill   = errors.New("still being indexed")
	errEnds    = errors.New("the server ends")
)

// inFlightIndexing are outputs that are being indexed, or wait for that: bounded, of each base, too.
type inFlightIndexing struct {
	ctx   context.Context
	stop  context.CancelCauseFunc
	slots chan struct{} // one for each that is indexed now
	work  sync.WaitGroup
	// settle is how long is waited for them: ctxSettle.
	settle time.Duration

	mu     sync.Mutex
	closed bool                             // guarded by mu
	all    map[index.Base]map[*pending]bool // guarded by mu
	n      int                              // guarded by mu
}

// A pending is one of them.
type pending struct {
	base   index.Base
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when it can be found, or never will be
}

func (p *inFlightIndexing) begin() {
	p.ctx, p.stop = context.WithCancelCause(context.Background())
	p.settle = ctxSettle
	p.slots, p.all = make(chan struct{}, ctxIndexing), map[index.Base]map[*pending]bool{}
}

// run has f called by another goroutine, when there is a slot. Of ctx f gets the values, and an end when the server or a purge
// of the base has it so: that may have come before. The error is errCrowded or errEnds: it is not called.
func (p *inFlightIndexing) run(ctx context.Context, b index.Base, f func(context.Context)) (*pending, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed || p.ctx.Err() != nil:
		return nil, errEnds
	case p.n >= ctxWaiting, len(p.all[b]) >= ctxWaitingEach:
		return nil, errCrowded
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
		defer context.AfterFunc(p.ctx, func() { cancel(errEnds) })()
		select {
		case p.slots <- struct{}{}:
			defer func() { <-p.slots }()
		case <-ctx.Done():
		}
		f(ctx)
	})
	return q, nil
}

func (p *inFlightIndexing) end(q *pending) {
	p.mu.Lock()
	if delete(p.all[q.base], q); len(p.all[q.base]) == 0 {
		delete(p.all, q.base)
	}
	p.n--
	p.mu.Unlock()
	close(q.done)
}

// of are those of a base.
func (p *inFlightIndexing) of(b index.Base) []*pending {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.all[b]))
}

// wait waits for those of a base that there are now, for a time.
func (p *inFlightIndexing) wait(ctx context.Context, b index.Base) { await(ctx, p.of(b), p.settle) }

// drop ends those of a base that there are now: what runs is undone, and what waits is not begun.
func (p *inFlightIndexing) drop(ctx context.Context, b index.Base) {
	all := p.of(b)
	for _, q := range all {
		q.cancel(index.ErrPurged)
	}
	await(ctx, all, p.settle)
}

func await(ctx context.Context, all []*pending, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for _, q := range all {
		select {
		case <-q.done:
		case <-ctx.Done():
			return
		}
	}
}

// close calls before, waits for all there is, for a time that begins now, and gives the rest up. It says whether all of it has
// ended: what does not obey is left behind.
func (p *inFlightIndexing) close(before func()) bool {
	timer := time.AfterFunc(p.settle, func() { p.stop(errEnds) })
	defer p.stop(errEnds)
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
