package index

import (
	"context"
	"errors"
	"io"
	"log/slog"
)

// startRebuild runs Options.Rebuild in the background for a base that was recreated.
func (x *Index) startRebuild(id Base) {
	if x.rebuild == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed || x.rebuilding[id] != nil {
		return
	}
	ctx, cancel := context.WithCancel(x.ctx)
	x.rebuilding[id] = cancel
	x.work.Go(func() {
		defer cancel()
		err := x.rebuild(ctx, id, func(s Source, r io.Reader) error {
			_, err := x.add(ctx, id, s, r)
			return err
		})
		if err != nil && ctx.Err() == nil {
			x.log.Warn("rebuilding a knowledge base failed", slog.String("error", err.Error()))
		}
		x.mu.Lock()
		delete(x.rebuilding, id)
		x.mu.Unlock()
	})
}

// cancelRebuild ends the rebuild of a base, if one is running.
func (x *Index) cancelRebuild(id Base) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if cancel := x.rebuilding[id]; cancel != nil {
		cancel()
	}
}

// A spentError is the error of an operation that cannot be retried because part of its input has been consumed.
type spentError struct{ error }

func (e spentError) Unwrap() error { return e.error }

// with calls f with the base, and retries once if the base turns out to be damaged or purged.
func (x *Index) with(ctx context.Context, id Base, create bool, f func(b *base) error) error {
	for last := false; ; last = true {
		b, err := x.acquire(ctx, id, create)
		if err != nil {
			return err
		}
		err = f(b)
		if isDamaged(err) {
			x.replace(ctx, b, err)
		}
		x.release(b)
		var spent spentError
		if last || errors.As(err, &spent) || !isDamaged(err) && !errors.Is(err, ErrPurged) {
			return err
		}
	}
}

// replace removes a database that turned out to be damaged, unless it was replaced already.
func (x *Index) replace(ctx context.Context, b *base, why error) {
	x.drop(b)
	if b.RemoveDamaged(ctx, x.state, why, x.log) {
		x.startRebuild(b.ID)
	}
}
