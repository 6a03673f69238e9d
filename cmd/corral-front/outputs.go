package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"corral/internal/config"
	"corral/store/artifact"
)

// outputs is an artifact store that the first call that needs it opens: a server that is only inspected leaves nothing
// behind.
type outputs struct {
	log     *slog.Logger
	options artifact.Options
	plain   bool                     // secrets in output are not redacted
	state   func() (*os.File, error) // opens the directory of this user's state

	mu    sync.Mutex
	store *artifact.Store // guarded by mu; nil before it is opened
}

func artifactOptions(c config.Config) artifact.Options {
	return artifact.Options{
		TTL: c.Artifacts.TTL, MaxCount: c.Artifacts.MaxCount, MaxBytes: c.Artifacts.MaxBytes, StreamBytes: c.Output.Keep,
		FsyncEach: c.Artifacts.Fsync == config.Each,
	}
}

// opened returns the store. If it could not be opened, the next call tries again.
func (o *outputs) opened() (*artifact.Store, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.store != nil {
		return o.store, nil
	}
	state, err := o.state()
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	defer func() { _ = state.Close() }()
	store, err := artifact.Open(state, o.options)
	if err != nil {
		return nil, err
	}
	o.store = store
	return store, nil
}

// Begin implements run.Outputs. Without a store the job runs, and its reply says that its output is not stored.
func (o *outputs) Begin(b artifact.BeginOptions) *artifact.Output {
	b.Plain = o.plain
	if b.View.Whole > 0 && !b.Persist { // the reply has all of the output
		return (*artifact.Store)(nil).Begin(b)
	}
	store, err := o.opened()
	if err != nil {
		o.log.Error("output is not stored", "error", err)
	}
	return store.Begin(b)
}

// Query implements execute.Artifacts.
func (o *outputs) Query(ctx context.Context, q artifact.Query) (*artifact.Answer, error) {
	store, err := o.opened()
	if err != nil {
		return nil, err
	}
	a, err := store.Query(ctx, q)
	return notedAnswer(ctx, a, err)
}

// Find implements execute.Artifacts.
func (o *outputs) Find(ctx context.Context, r artifact.Reader, handle string) (*artifact.Manifest, error) {
	store, err := o.opened()
	if err != nil {
		return nil, err
	}
	return store.Find(ctx, r, handle)
}

// Stream implements ctxtools.Kept.
func (o *outputs) Stream(ctx context.Context, r artifact.Reader, handle, stream string, w io.Writer) error {
	store, err := o.opened()
	if err != nil {
		return err
	}
	return store.Stream(ctx, r, handle, stream, w)
}

// has reports whether r can read an artifact now.
func (o *outputs) has(r artifact.Reader, handle string) bool {
	store, err := o.opened()
	return err == nil && store.Copy(r, handle, nil, nil) == nil
}

func (o *outputs) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.store.Close()
}
