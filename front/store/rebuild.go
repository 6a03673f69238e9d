package store

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"sync"

	"corral/mcp/ctxtools"
	"corral/store/artifact"
	"corral/store/index"
)

// rebuild is index.Options.Rebuild: it adds the stored output of a base's jobs, the oldest first.
func (o *Artifacts) rebuild(ctx context.Context, b index.Base, add func(index.Source, io.Reader) error) error {
	store, err := o.store.get()
	if err != nil {
		return err
	}
	return Refill(ctx, store, b, add)
}

// Refill adds the stored output of a base. Artifacts that are damaged, or expire meanwhile, are skipped.
func Refill(ctx context.Context, store *artifact.Store, b index.Base, add func(index.Source, io.Reader) error) error {
	reader := artifact.Reader{Principal: b.Principal, Repos: []string{b.Repo}}
	list, err := store.List(reader, math.MaxInt)
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(list) {
		for _, source := range ctxtools.SourcesOf(m) {
			r, w := io.Pipe()
			var read sync.WaitGroup
			read.Go(func() { _ = w.CloseWithError(store.Stream(ctx, reader, m.ArtifactID, source.Stream, w)) })
			err := add(source, r)
			_ = r.CloseWithError(io.ErrClosedPipe)
			read.Wait()
			if err != nil && !errors.Is(err, artifact.ErrCorrupt) && !errors.Is(err, artifact.ErrNotFound) && !errors.Is(err, artifact.ErrExpired) {
				return err
			}
		}
	}
	return ctx.Err()
}
