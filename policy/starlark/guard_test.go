package starlark

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.starlark.net/starlark"
)

// TestTime checks that a run that ignores its cancellation is denied in time and keeps its token.
func TestTime(t *testing.T) {
	r := parse(t, body("return allow()"))
	release := make(chan struct{})
	stuck := func(*starlark.Thread) (starlark.Value, error) { // like one long operation of the library
		<-release
		return starlark.None, t.Context().Err()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	var all sync.WaitGroup
	for range cap(r.guard.tokens) {
		all.Go(func() {
			if _, err := r.guard.run(t.Context(), MaxSteps, stuck); !errors.Is(err, errTime) {
				t.Errorf("%v", err)
			}
		})
	}
	all.Wait()
	if got := r.Decide(t.Context(), query()); !strings.Contains(got.Reason, "too many earlier decisions are still running") {
		t.Errorf("without a token: %+v", got)
	}
	if _, err := r.guard.run(ctx, MaxSteps, stuck); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a token, and canceled: %v", err)
	}
	close(release)
	for range cap(r.guard.tokens) { // available once the runs have ended
		r.guard.tokens <- struct{}{}
	}
}

// TestPanic checks that a panic of the library fails one decision only.
func TestPanic(t *testing.T) {
	_, err := newGuard().run(t.Context(), MaxSteps, func(*starlark.Thread) (starlark.Value, error) { panic("oh") })
	if err == nil || !strings.Contains(err.Error(), "the interpreter panicked: oh") {
		t.Errorf("%v", err)
	}
}
