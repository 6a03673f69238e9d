package store

import (
	"context"
	"io"
	"log/slog"
	"os"

	"corral/internal/calls"
	"corral/internal/config"
	"corral/store/index"
)

// Knowledge is a knowledge base over the output of jobs, which the first call that needs it opens. If it cannot be opened,
// calls that search it fail, but not calls that run something.
type Knowledge struct {
	log   *slog.Logger
	index lazy[*index.Index]
}

// NewKnowledge returns the knowledge base of a configuration, or nil if that disables it. state opens the directory of this
// user's state. A damaged base is rebuilt from artifacts.
func NewKnowledge(c config.Config, log *slog.Logger, state func() (*os.File, error), artifacts *Artifacts) *Knowledge {
	if !c.Index.Enabled {
		return nil
	}
	o := index.Options{TTL: c.Index.TTL, MaxBytes: c.Index.MaxBytes, Log: log, Rebuild: artifacts.rebuild}
	return &Knowledge{log: log, index: lazy[*index.Index]{open: func() (*index.Index, error) {
		return inState(state, func(dir *os.File) (*index.Index, error) { return index.Open(dir, o) })
	}}}
}

// about records the repository of the call, and calls use with the index.
func about[R any](ctx context.Context, k *Knowledge, b index.Base, use func(*index.Index) (R, error)) (R, error) {
	calls.Of(ctx).Repo(b.Repo)
	return with(&k.index, use)
}

// Add implements ctxtools.Knowledge.
func (k *Knowledge) Add(ctx context.Context, b index.Base, s index.Source, r io.Reader) (index.Added, error) {
	return about(ctx, k, b, func(x *index.Index) (index.Added, error) { return x.Add(ctx, b, s, r) })
}

// Search implements ctxtools.Knowledge.
func (k *Knowledge) Search(ctx context.Context, b index.Base, q index.Query) (*index.Found, error) {
	return about(ctx, k, b, func(x *index.Index) (*index.Found, error) { return x.Search(ctx, b, q) })
}

// Has implements ctxtools.Knowledge.
func (k *Knowledge) Has(ctx context.Context, b index.Base, handle, stream string) (bool, error) {
	return about(ctx, k, b, func(x *index.Index) (bool, error) { return x.Has(ctx, b, handle, stream) })
}

// Stats implements ctxtools.Knowledge.
func (k *Knowledge) Stats(ctx context.Context, b index.Base) (index.Stats, error) {
	return about(ctx, k, b, func(x *index.Index) (index.Stats, error) { return x.Stats(ctx, b) })
}

// Purge implements ctxtools.Knowledge.
func (k *Knowledge) Purge(ctx context.Context, b index.Base) (index.Stats, error) {
	return about(ctx, k, b, func(x *index.Index) (index.Stats, error) { return x.Purge(ctx, b) })
}

// Close closes the knowledge base. A later call gets an error. k may be nil.
func (k *Knowledge) Close() {
	if k == nil {
		return
	}
	x, opened := k.index.close()
	if !opened {
		return
	}
	if err := x.Close(); err != nil {
		k.log.Warn("could not close the index", "error", err)
	}
}
