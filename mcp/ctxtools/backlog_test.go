package ctxtools

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"corral/mcp/tool"
	"corral/store/index"
)

// base is a knowledge base.
var base = index.Base{Repo: "app", Principal: "user:ada"}

// TestIndexBacklogIsBounded: the backlog is bounded in total and per knowledge base; more is refused, not queued.
func TestIndexBacklogIsBounded(t *testing.T) {
	x := newBacklog()
	hold := make(chan struct{})
	hang := func(context.Context) { <-hold }
	for n := range maxAll {
		b := index.Base{Repo: string(rune('a' + n/maxEach))}
		if _, err := x.Run(t.Context(), b, hang); err != nil {
			t.Fatalf("%d: %v", n, err)
		}
		if n != maxEach-1 {
			continue
		}
		if _, err := x.Run(t.Context(), b, hang); !errors.Is(err, errFull) {
			t.Errorf("one above the limit of a base: %v", err)
		}
	}
	if _, err := x.Run(t.Context(), base, hang); !errors.Is(err, errFull) {
		t.Errorf("one above the total limit: %v", err)
	}
	close(hold)
	x.Close(func() {})
	if x.n != 0 || len(x.all) != 0 {
		t.Errorf("%d entries left", x.n)
	}
	if _, err := x.Run(t.Context(), base, hang); !errors.Is(err, errShuttingDown) {
		t.Errorf("after Close: %v", err)
	}
}

// TestIndexWaitEndsWithContext: a wait for others' indexing ends with its context.
func TestIndexWaitEndsWithContext(t *testing.T) {
	x := newBacklog()
	began := make(chan struct{}, maxRunning)
	for range maxRunning {
		if _, err := x.Run(t.Context(), base, func(ctx context.Context) { began <- struct{}{}; <-ctx.Done() }); err != nil {
			t.Fatal(err)
		}
	}
	for range maxRunning {
		<-began
	}
	q, err := x.Run(t.Context(), base, func(ctx context.Context) { // waits for a slot
		if !errors.Is(context.Cause(ctx), io.ErrNoProgress) {
			t.Errorf("cause %v", context.Cause(ctx))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	q.Cancel(io.ErrNoProgress)
	<-q.Done
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	x.Wait(ctx, base) // must return
	x.Drop(t.Context(), base)
	if n := x.Count(base); n != 0 {
		t.Errorf("%d entries left", n)
	}
	x.Close(func() {})
}

// TestIndexWaitOfSeveral: a search of several knowledge bases waits for all of them together as long as for one.
func TestIndexWaitOfSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := New(Settings{Knowledge: &memoryKnowledge{}, Repos: []string{"app", "other", "third"}})
		for _, repo := range x.Repos {
			b := index.Base{Repo: repo, Principal: "user:ada"}
			if _, err := x.pending.Run(t.Context(), b, func(ctx context.Context) { <-ctx.Done() }); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now() // of the test's own clock
		found, err := x.Recall(t.Context(), tool.Caller{Principal: "user:ada"}, "", index.Query{Text: "fox", Limit: 3})
		if took := time.Since(began); err != nil || found.Pending != 3 || took != settleTimeout {
			t.Errorf("%+v, %v after %v", found, err, took)
		}
		x.Close()
	})
}
