// Package store has the artifact store and the knowledge base of a server, which it opens when they are first needed, and the
// patches that it stores of the changes of sessions.
//
// A server that is started only to list its tools leaves nothing behind.
package store

import (
	"context"
	"io"
	"log/slog"
	"os"

	"corral/internal/calls"
	"corral/internal/config"
	"corral/store/artifact"
)

// Artifacts is an artifact store that the first call that needs it opens.
type Artifacts struct {
	log   *slog.Logger
	plain bool // secrets in output are not redacted
	store lazy[*artifact.Store]
}

// NewArtifacts returns the artifact store of a configuration. state opens the directory of this user's state. samples may be nil.
func NewArtifacts(c config.Config, log *slog.Logger, state func() (*os.File, error), samples artifact.Sampler) *Artifacts {
	o := artifact.Options{
		TTL: c.Artifacts.TTL, MaxCount: c.Artifacts.MaxCount, MaxBytes: c.Artifacts.MaxBytes, StreamBytes: c.Output.Keep,
		FsyncEach: c.Artifacts.Fsync == config.Each, Live: true, Samples: samples,
	}
	return &Artifacts{log: log, plain: !c.Output.Redact, store: lazy[*artifact.Store]{open: func() (*artifact.Store, error) {
		return inState(state, func(dir *os.File) (*artifact.Store, error) { return artifact.Open(dir, o) })
	}}}
}

// Open opens the store, for programs that run no job whose output is not stored.
func (o *Artifacts) Open() error {
	_, err := o.store.get()
	return err
}

// Begin implements run.Outputs. Without a store the job runs, and its reply says that its output is not stored.
func (o *Artifacts) Begin(b artifact.BeginOptions) *artifact.Output {
	b.Plain = o.plain
	if b.View.Whole > 0 && !b.Persist { // the reply has all of the output
		return (*artifact.Store)(nil).Begin(b)
	}
	store, err := o.store.get()
	if err != nil {
		o.log.Error("output is not stored", "error", err)
	}
	return store.Begin(b)
}

// Query implements execute.Artifacts.
func (o *Artifacts) Query(ctx context.Context, q artifact.Query) (*artifact.Answer, error) {
	a, err := with(&o.store, func(s *artifact.Store) (*artifact.Answer, error) { return s.Query(ctx, q) })
	if err == nil && a.Manifest != nil {
		calls.Of(ctx).Repo(a.Manifest.RepoID) // for the diagnostic log and the span of the call
	}
	return a, err
}

// Find implements execute.Artifacts.
func (o *Artifacts) Find(ctx context.Context, r artifact.Reader, handle string) (*artifact.Manifest, error) {
	return with(&o.store, func(s *artifact.Store) (*artifact.Manifest, error) { return s.Find(ctx, r, handle) })
}

// Stream implements ctxtools.Kept.
func (o *Artifacts) Stream(ctx context.Context, r artifact.Reader, handle, stream string, w io.Writer) error {
	store, err := o.store.get()
	if err != nil {
		return err
	}
	return store.Stream(ctx, r, handle, stream, w)
}

// Has reports whether r can read an artifact now.
func (o *Artifacts) Has(r artifact.Reader, handle string) bool {
	store, err := o.store.get()
	return err == nil && store.Copy(r, handle, nil, nil) == nil
}

// List returns at most limit artifacts that r may read now, newest first.
func (o *Artifacts) List(r artifact.Reader, limit int) ([]*artifact.Manifest, error) {
	return with(&o.store, func(s *artifact.Store) ([]*artifact.Manifest, error) { return s.List(r, limit) })
}

// Used returns the size on disk of the user's artifacts in bytes, and false if it is not known: before the first call that needs
// the store.
func (o *Artifacts) Used() (bytes int64, ok bool) {
	store, opened := o.store.current()
	if !opened {
		return 0, false
	}
	return store.Used()
}

// Close closes the store after the last write to it. A later call gets an error.
func (o *Artifacts) Close() {
	if store, opened := o.store.close(); opened {
		store.Close()
	}
}
