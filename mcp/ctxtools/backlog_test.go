package ctxtools

import (
	"context"
	"errors"
	"io"
	"testing"

	"corral/store/index"
)

// base is a knowledge base.
var base = index.Base{Repo: "app", Principal: "user:ada"}

// TestIndexBacklogIsBounded: the backlog is bounded in total and per knowledge base; more is refused, not queued.
func TestIndexBacklogIsBounded(t *testing.T) {
	x := newBacklog()
	hold := make(chan struct{})
	hang := func(context.Context) { <-hold }
	for n := range maxIndexBacklog {
		b := index.Base{Repo: string(rune('a' + n/maxIndexBacklogEach))}
		if _, err := x.run(t.Context(), b, hang); err != nil {
			t.Fatalf("%d: %v", n, err)
		}
		if n != maxIndexBacklogEach-1 {
			continue
		}
		if _, err := x.run(t.Context(), b, hang); !errors.Is(err, errBacklogFull) {
			t.Errorf("one above the limit of a base: %v", err)
		}
	}
	if _, err := x.run(t.Context(), base, hang); !errors.Is(err, errBacklogFull) {
		t.Errorf("one above the total limit: %v", err)
	}
	close(hold)
	x.close(func() {})
	if x.n != 0 || len(x.all) != 0 {
		t.Errorf("%d entries left", x.n)
	}
	if _, err := x.run(t.Context(), base, hang); !errors.Is(err, errShuttingDown) {
		t.Errorf("after Close: %v", err)
	}
}

// TestIndexWaitEndsWithContext: a wait for others' indexing ends with its context.
func TestIndexWaitEndsWithContext(t *testing.T) {
	x := newBacklog()
	began := make(chan struct{}, maxIndexing)
	for range maxIndexing {
		if _, err := x.run(t.Context(), base, func(ctx context.Context) { began <- struct{}{}; <-ctx.Done() }); err != nil {
			t.Fatal(err)
		}
	}
	for range maxIndexing {
		<-began
	}
	q, err := x.run(t.Context(), base, func(ctx context.Context) { // waits for a slot
		if !errors.Is(context.Cause(ctx), io.ErrNoProgress) {
			t.Errorf("cause %v", context.Cause(ctx))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	q.cancel(io.ErrNoProgress)
	<-q.done
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	x.wait(ctx, base) // must return
	x.drop(t.Context(), base)
	if n := x.count(base); n != 0 {
		t.Errorf("%d entries left", n)
	}
	x.close(func() {})
}
