package index

import (
	"context"
	"database/sql"
	"errors"
)

// A load is what counts against the quota of a base.
type load struct{ cost, sources int64 }

func (b *base) load(ctx context.Context) (l load, err error) {
	err = b.read.QueryRowContext(ctx, "SELECT cost, sources FROM totals").Scan(&l.cost, &l.sources)
	return l, err
}

// within reports whether l does not exceed maximum.
func (l load) within(maximum load) bool {
	return l.cost <= maximum.cost && l.sources <= maximum.sources
}

// makeRoom evicts the oldest sources until cost fits, and if adding is 0, one more source. It then evicts some more, so
// that this is rarely necessary. adding is the id of the source being added.
func (x *Index) makeRoom(ctx context.Context, b *base, cost, adding int64) error {
	allowed := load{x.maxBytes - cost, x.sources}
	if adding == 0 {
		allowed.sources--
	}
	held, err := b.load(ctx)
	if err != nil || held.within(allowed) {
		return err
	}
	if err := b.removeMarked(ctx); err != nil { // they would be removed in the background otherwise
		return err
	}
	if held, err = b.load(ctx); err != nil || held.within(allowed) {
		return err
	}
	target := load{max(0, allowed.cost-x.maxBytes/16), allowed.sources - allowed.sources/16}
	if held, err = b.evict(ctx, held, target, adding); err != nil {
		return err
	}
	if err := b.removeMarked(ctx); err != nil {
		return err
	}
	if !held.within(allowed) { // the rest is being added now
		return errEnough
	}
	return nil
}

// evict marks the oldest sources for removal until the load is within target, and returns what remains.
func (b *base) evict(ctx context.Context, held, target load, adding int64) (load, error) {
	err := b.transact(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, "SELECT id, cost FROM sources WHERE state = ? AND id <> ? ORDER BY made, id", stateReady, adding)
		if err != nil {
			return err
		}
		var ids []int64
		for !held.within(target) && rows.Next() {
			var id, cost int64
			if err := rows.Scan(&id, &cost); err != nil {
				_ = rows.Close()
				return err
			}
			ids = append(ids, id)
			held = load{held.cost - cost, held.sources - 1}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
		for _, id := range ids {
			if _, err := tx.ExecContext(ctx, "UPDATE sources SET state = ? WHERE id = ?", stateRemoving, id); err != nil {
				return err
			}
		}
		return nil
	})
	return held, err
}
