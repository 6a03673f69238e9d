package ctxtools

import (
	"context"
	"errors"
	"testing"
)

// TestTurns: a turn ends when its holder is done, and a wait for it with its context.
func TestTurns(t *testing.T) {
	var x turns
	done, err := x.Acquire(t.Context(), "h")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.Acquire(ctx, "h"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled wait: %v", err)
	}
	done()
	if len(x.all) > 0 {
		t.Errorf("%d turns left", len(x.all))
	}
}
