package index

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Removing a source takes time, so it is marked first, which hides it, and removed afterwards in transactions of bounded
// size. A process that stops in between leaves a marked source, which the next sweep removes.

// markOrphans marks incomplete sources that no process is adding for removal.
func markOrphans(ctx context.Context, b *database, tx *sql.Tx) error {
	ids, err := column[int64](ctx, tx, "SELECT id FROM sources WHERE state = ?", stateAdding)
	if err != nil {
		return err
	}
	for _, id := range ids {
		err := b.IfOrphan(id, func() error {
			_, err := tx.ExecContext(ctx, "UPDATE sources SET state = ? WHERE id = ?", stateRemoving, id)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// removedAtOnce is the maximum number of chunks that one transaction removes.
const removedAtOnce = 1000

// removeMarked removes the sources that are marked for removal, and returns larger amounts of free space to the file
// system.
func removeMarked(ctx context.Context, b *database) error {
	ids, err := column[int64](ctx, b.Read, "SELECT id FROM sources WHERE state = ? ORDER BY id", stateRemoving)
	if err != nil || len(ids) == 0 {
		return err
	}
	for _, id := range ids {
		for more := true; more; {
			err := b.Transact(ctx, func(tx *sql.Tx) (err error) {
				more, err = removeSome(ctx, tx, id)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	if err := forget(ctx, b); err != nil {
		return err
	}
	return shrink(ctx, b)
}

// removeSome removes up to removedAtOnce chunks of a source, and with the last ones the source.
func removeSome(ctx context.Context, tx *sql.Tx, source int64) (more bool, err error) {
	rows, err := column[int64](ctx, tx, "SELECT rowid FROM found WHERE rowid BETWEEN ? AND ? ORDER BY rowid LIMIT ?",
		rowOf(source, 0, false), rowOf(source, maxChunks-1, true), removedAtOnce)
	if err != nil {
		return false, err
	}
	remove, err := tx.PrepareContext(ctx, "DELETE FROM found WHERE rowid = ?") // closed with the transaction
	if err != nil {
		return false, err
	}
	for _, row := range rows {
		if _, err := remove.Exec(row); err != nil {
			return false, err
		}
	}
	if len(rows) == removedAtOnce {
		return true, nil
	}
	_, err = tx.ExecContext(ctx, "DELETE FROM sources WHERE id = ?", source)
	return false, err
}

const (
	// A database is shrunk when at least this many of its pages, and an eighth of all, are free.
	freePages = 256
	// vacuumAtOnce is the number of pages that one transaction returns to the file system.
	vacuumAtOnce = 2000
)

// shrink returns free pages to the file system.
func shrink(ctx context.Context, b *database) error {
	for {
		var pages, free int
		if err := b.Read.QueryRowContext(ctx, "PRAGMA page_count").Scan(&pages); err != nil {
			return err
		}
		if err := b.Read.QueryRowContext(ctx, "PRAGMA freelist_count").Scan(&free); err != nil {
			return err
		}
		if free < freePages || free < pages/8 {
			return nil
		}
		if err := vacuum(ctx, b); err != nil {
			return err
		}
	}
}

func vacuum(ctx context.Context, b *database) error {
	done, err := b.BeginWriting(ctx)
	if err != nil {
		return err
	}
	defer done()
	// SQLite frees one page per row that is read.
	rows, err := b.Write.QueryContext(ctx, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", vacuumAtOnce))
	if err != nil {
		return err
	}
	for rows.Next() {
	}
	return errors.Join(rows.Err(), rows.Close())
}
