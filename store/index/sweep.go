package index

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
)

// sweep removes sources that expired or were replaced, and incomplete sources of processes that were killed. What cannot
// be removed now is hidden, and left to the next sweep. Large amounts are removed in the background. An error means that
// the base is damaged.
func (x *Index) sweep(ctx context.Context, b *base) error {
	err := b.Transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE sources SET state = ? WHERE made < ? AND state = ?", stateRemoving, x.horizon(), stateReady)
		if err != nil {
			return err
		}
		return markOrphans(ctx, b.database, tx)
	})
	var going int64
	if err == nil {
		err = b.Read.QueryRowContext(ctx, "SELECT coalesce(sum(sections), 0) FROM sources WHERE state = ?", stateRemoving).Scan(&going)
	}
	switch {
	case err != nil:
	case going > removedAtOnce:
		x.removeLater(b)
	default:
		err = removeMarked(ctx, b.database)
	}
	if isDamaged(err) {
		return err
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrPurged) {
		x.log.Warn("sweeping a knowledge base failed", slog.String("error", err.Error()))
	}
	return nil
}

// removeLater removes the marked sources in the background.
func (x *Index) removeLater(b *base) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed || b.removing {
		return
	}
	b.removing = true
	b.refs++
	x.work.Go(func() {
		defer x.release(b)
		err := removeMarked(x.ctx, b.database)
		x.mu.Lock()
		b.removing = false
		x.mu.Unlock()
		switch {
		case isDamaged(err):
			x.replace(x.ctx, b, err)
		case err != nil && x.ctx.Err() == nil && !errors.Is(err, ErrPurged):
			x.log.Warn("sweeping a knowledge base failed", slog.String("error", err.Error()))
		}
	})
}

// horizon returns the time, in Unix nanoseconds, before which sources have expired.
func (x *Index) horizon() int64 { return x.now().Add(-x.ttl).UnixNano() }
