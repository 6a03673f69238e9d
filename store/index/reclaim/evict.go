package reclaim

import (
	"context"
	"database/sql"
	"errors"

	"corral/store/index/db"
)

// A Load is what counts against the quota of a base.
type Load struct{ Cost, Sources int64 }

// LoadOf returns the load of a base.
func LoadOf(ctx context.Context, b *db.Base) (l Load, err error) {
	err = b.Read.QueryRowContext(ctx, "SELECT cost, sources FROM totals").Scan(&l.Cost, &l.Sources)
	return l, err
}

// Within reports whether l does not exceed maximum.
func (l Load) Within(maximum Load) bool {
	return l.Cost <= maximum.Cost && l.Sources <= maximum.Sources
}

// Evict marks the oldest sources for removal until the load is within target, and returns what remains.
func Evict(ctx context.Context, b *db.Base, held, target Load, adding int64) (Load, error) {
	err := b.Transact(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, "SELECT id, cost FROM sources WHERE state = ? AND id <> ? ORDER BY made, id", db.Ready, adding)
		if err != nil {
			return err
		}
		var ids []int64
		for !held.Within(target) && rows.Next() {
			var id, cost int64
			if err := rows.Scan(&id, &cost); err != nil {
				_ = rows.Close()
				return err
			}
			ids = append(ids, id)
			held = Load{held.Cost - cost, held.Sources - 1}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
		for _, id := range ids {
			if _, err := tx.ExecContext(ctx, "UPDATE sources SET state = ? WHERE id = ?", db.Removing, id); err != nil {
				return err
			}
		}
		return nil
	})
	return held, err
}
