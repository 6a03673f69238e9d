package vocab

import (
	"context"
	"database/sql"
	"math"

	"corral/store/index/db"
)

// Forget removes words that are in no source any more. It does so only when half of the sources have been removed since the
// last time.
func Forget(ctx context.Context, b *db.Base) error {
	var sources, gone, first int64
	err := b.Read.QueryRowContext(ctx, "SELECT sources, gone, (SELECT coalesce(min(id), ?) FROM sources) FROM totals",
		int64(math.MaxInt64)).Scan(&sources, &gone, &first)
	if err != nil || gone <= max(sources, seenSlack) && sources > 0 {
		return err
	}
	for more := true; more; {
		err := b.Transact(ctx, func(tx *sql.Tx) (err error) {
			more, err = forgetSome(ctx, tx, first)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// forgetAtOnce is the maximum number of words that one transaction removes.
const forgetAtOnce = 1000

func forgetSome(ctx context.Context, tx *sql.Tx, first int64) (more bool, err error) {
	ids, err := db.Numbers(ctx, tx, "SELECT id FROM words WHERE seen < ? LIMIT ?", first-seenSlack, forgetAtOnce)
	if err != nil {
		return false, err
	}
	for _, id := range ids {
		for _, table := range []string{"DELETE FROM grams WHERE rowid = ?", "DELETE FROM words WHERE id = ?"} {
			if _, err := tx.ExecContext(ctx, table, id); err != nil {
				return false, err
			}
		}
	}
	if len(ids) == forgetAtOnce {
		return true, nil
	}
	_, err = tx.ExecContext(ctx, "UPDATE totals SET gone = 0")
	return false, err
}
