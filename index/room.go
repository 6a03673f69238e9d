package index

import (
	"context"
	"database/sql"
	"errors"
)

// A load is what a base has, as the quota counts.
type load struct{ cost, sources int64 }

func (b *base) load(ctx context.Context) (l load, err error) {
	err = b.read.QueryRowContext(ctx, "SELECT cost, sources FROM totals").Scan(&l.cost, &l.sources)
	return l, err
}

// within says whether it is no more than that.
func (l load) within(most load) bool { return l.cost <= most.cost && l.sources <= most.sources }

// makeRoom has the oldest sources go until there is room for more, and, if none is being added, for another source. When
// it has to, it makes some more room, so that it has to seldom.
func (x *Index) makeRoom(ctx context.Context, b *base, more, adding int64) error {
	most := load{x.maxBytes - more, x.sources}
	if adding == 0 {
		most.sources--
	}
	held, err := b.load(ctx)
	if err != nil || held.within(most) {
		return err
	}
	if err := b.removeGoing(ctx); err != nil { // what else would go in the background
		return err
	}
	if held, err = b.load(ctx); err != nil || held.within(most) {
		return err
	}
	least := load{max(0, most.cost-x.maxBytes/16), most.sources - most.sources/16}
	if held, err = b.leave(ctx, held, least, adding); err != nil {
		return err
	}
	if err := b.removeGoing(ctx); err != nil {
		return err
	}
	if !held.within(most) { // what others add now
		return errEnough
	}
	return nil
}

// leave has the oldest sources go until there is no more than least, and returns what is left.
func (b *base) leave(ctx context.Context, held, least load, adding int64) (load, error) {
	err := b.transact(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, "SELECT id, cost FROM sources WHERE state = ? AND id <> ? ORDER BY made, id", stateThere, adding)
		if err != nil {
			return err
		}
		var ids []int64
		for !held.within(least) && rows.Next() {
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
			if _, err := tx.ExecContext(ctx, "UPDATE sources SET state = ? WHERE id = ?", stateGoing, id); err != nil {
				return err
			}
		}
		return nil
	})
	return held, err
}
