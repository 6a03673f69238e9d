package index

import (
	"context"
	"errors"
	"io"
	"log/slog"
)

// refill has Options.Rebuild fill a base that has been begun anew, in the background.
func (x *Index) refill(id Base) {
	if x.rebuild == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed || x.anew[id] != nil {
		return
	}
	ctx, cancel := context.WithCancel(x.ctx)
	x.anew[id] = cancel
	x.work.Go(func() {
		defer cancel()
		err := x.rebuild(ctx, id, func(s Source, r io.Reader) error {
			_, err := x.add(ctx, id, s, r)
			return err
		})
		if err != nil && ctx.Err() == nil {
			x.log.Warn("a knowledge base is not filled again", slog.String("error", err.Error()))
		}
		x.mu.Lock()
		delete(x.anew, id)
		x.mu.Unlock()
	})
}

// unfill ends that.
func (x *Index) unfill(id Base) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if cancel := x.anew[id]; cancel != nil {
		cancel()
	}
}

// A spentError is of an operation that cannot be tried again: of what it was given, some is read.
type spentError struct{ error }

func (e spentError) Unwrap() error { return e.error }

// with calls f with the base, and once more if the base shows to be damaged, or to have been purged.
func (x *Index) with(ctx context.Context, id Base, create bool, f func(b *base) error) error {
	for last := false; ; last = true {
		b, err := x.acquire(ctx, id, create)
		if err != nil {
			return err
		}
		err = f(b)
		if damaged(err) {
			x.replace(ctx, b, err)
		}
		x.release(b)
		var spent spentError
		if last || errors.As(err, &spent) || !damaged(err) && !errors.Is(err, ErrPurged) {
			return err
		}
	}
}

// replace removes a database that showed damage, unless somebody else did.
func (x *Index) replace(ctx context.Context, b *base, why error) {
	x.drop(b)
	dir, err := x.lockedDir(ctx)
	if err != nil {
		return
	}
	defer closeFD(dir)
	st, err := look(dir, b.name)
	if err != nil || st.Ino != b.ino {
		return
	}
	x.log.Warn("a knowledge base is damaged and begun anew", slog.String("file", b.name), slog.String("error", why.Error()))
	if err := removeBase(dir, b.id); err != nil {
		x.log.Warn("a knowledge base is damaged", slog.String("error", err.Error()))
		return
	}
	x.refill(b.id)
}
