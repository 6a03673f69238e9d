package index

import (
	"context"
	"database/sql"
	"errors"
)

// A load is what counts against the quota of a base.
type load struct{ cost, sources int64 }

// loadOf returns the load of a base.
func loadOf(ctx context.Context, b *database) (l load, err error) {
	err = b.Read.QueryRowContext(ctx, "SELECT cost, sources FROM totals").Scan(&l.cost, &l.sources)
	return l, err
}

// within reports whether l does not exceed maximum.
func (l load) within(maximum load) bool {
	return l.cost <= maximum.cost && l.sources <= maximum.sources
}

// evict marks the oldest sources for removal until the load is within target, and returns what remains.
func evict(ctx context.Context, b *database, held, target load, adding int64) (load, error) {
	err := b.Transact(ctx, func(tx *sql.Tx) error {
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
