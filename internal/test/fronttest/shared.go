package fronttest

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"corral/internal/test/sandboxtest"
)

// A Shared is a supervisor that the tests of a process share: the first of them starts it, and it lasts as long as the process. The zero
// Shared has none yet.
type Shared[S interface{ Close() error }] struct {
	mu       sync.Mutex
	s        S                  // guarded by mu
	started  bool               // guarded by mu
	instance string             // guarded by mu
	dir      string             // guarded by mu
	log      sandboxtest.Output // the errors that it logged
}

// Get returns the supervisor, and its state directory. start starts it, with this instance, this state directory and this log.
func (o *Shared[S]) Get(t testing.TB, start func(instance, state string, log *slog.Logger) (S, error)) (s S, state string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.started {
		dir, err := os.MkdirTemp("", "corral-shared-") //nolint:usetesting // tests share it: it outlives the one that makes it
		if err != nil {
			t.Fatal(err)
		}
		o.dir, o.instance = dir, InstanceName()
		o.s, err = start(o.instance, o.state(), slog.New(slog.NewTextHandler(&o.log, &slog.HandlerOptions{Level: slog.LevelError})))
		if err != nil {
			t.Fatal(errors.Join(err, os.RemoveAll(dir)))
		}
		o.started = true
	}
	return o.s, o.state()
}

// state returns the state directory. The caller holds mu.
func (o *Shared[S]) state() string { return filepath.Join(o.dir, "state") }

// Close ends the supervisor, if there is one. The error says what it logged as an error, and what it left behind.
func (o *Shared[S]) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.started {
		return nil
	}
	err := errors.Join(o.s.Close(), os.RemoveAll(o.dir))
	if log := o.log.String(); log != "" {
		err = errors.Join(err, fmt.Errorf("it logged %s", log))
	}
	for _, left := range Traces(o.instance) {
		err = errors.Join(err, fmt.Errorf("it left behind %s", left))
	}
	if err != nil {
		return fmt.Errorf("the supervisor that tests share: %w", err)
	}
	return nil
}
