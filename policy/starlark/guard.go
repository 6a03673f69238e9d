package starlark

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"go.starlark.net/starlark"
)

// cancelTimeout is how long the interpreter has to react to its cancellation. A single operation of the library does not,
// for example sorting a range of 10^9 numbers.
const cancelTimeout = 100 * time.Millisecond

// A guard runs the interpreter within bounds. A run that does not react to its cancellation is abandoned, but keeps its
// token. So the number of such runs is bounded, and when no token is left every decision fails.
type guard struct{ tokens chan struct{} }

func newGuard() guard { return guard{make(chan struct{}, max(4, runtime.GOMAXPROCS(0)))} }

var (
	errTime  = fmt.Errorf("the decision took longer than %s", MaxTime)
	errStuck = errors.New("too many earlier decisions are still running")
)

type outcome struct {
	value starlark.Value
	err   error
}

// run calls f with a new thread.
func (g guard) run(ctx context.Context, steps uint64, f func(*starlark.Thread) (starlark.Value, error)) (starlark.Value, error) {
	timer := time.NewTimer(MaxTime)
	defer timer.Stop()
	select {
	case g.tokens <- struct{}{}:
	case <-timer.C:
		return nil, errStuck
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	thread := &starlark.Thread{Name: "rules", Print: func(*starlark.Thread, string) {}}
	thread.SetMaxExecutionSteps(steps)
	ended := make(chan outcome, 1) // buffered: the receiver may have left
	go func() {
		defer func() { <-g.tokens }()
		ended <- protected(thread, f)
	}()
	var err error
	select {
	case o := <-ended:
		return o.value, o.err
	case <-timer.C:
		err = errTime
	case <-ctx.Done():
		err = ctx.Err()
	}
	thread.Cancel(err.Error())
	timer.Reset(cancelTimeout)
	select {
	case <-ended:
	case <-timer.C:
	}
	return nil, err
}

// protected calls f, and converts a panic of the library to an error, so that only one decision fails.
func protected(thread *starlark.Thread, f func(*starlark.Thread) (starlark.Value, error)) (o outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = outcome{err: fmt.Errorf("the interpreter panicked: %v", p)}
		}
	}()
	value, err := f(thread)
	return outcome{value, err}
}
