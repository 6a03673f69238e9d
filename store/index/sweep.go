package index

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"

	"golang.org/x/sys/unix"
)

// sweep removes sources that expired or were replaced, and incomplete sources of processes that were killed. What cannot
// be removed now is hidden, and left to the next sweep. Large amounts are removed in the background. An error means that
// the base is damaged.
func (x *Index) sweep(ctx context.Context, b *base) error {
	err := b.transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE sources SET state = ? WHERE made < ? AND state = ?", stateRemoving, x.horizon(), stateReady)
		if err != nil {
			return err
		}
		return b.markOrphans(ctx, tx)
	})
	var going int64
	if err == nil {
		err = b.read.QueryRowContext(ctx, "SELECT coalesce(sum(sections), 0) FROM sources WHERE state = ?", stateRemoving).Scan(&going)
	}
	switch {
	case err != nil:
	case going > removeAtOnce:
		x.removeLater(b)
	default:
		err = b.removeMarked(ctx)
	}
	if damaged(err) {
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
		err := b.removeMarked(x.ctx)
		x.mu.Lock()
		b.removing = false
		x.mu.Unlock()
		switch {
		case damaged(err):
			x.replace(x.ctx, b, err)
		case err != nil && x.ctx.Err() == nil && !errors.Is(err, ErrPurged):
			x.log.Warn("sweeping a knowledge base failed", slog.String("error", err.Error()))
		}
	})
}

// horizon returns the time, in Unix nanoseconds, before which sources have expired.
func (x *Index) horizon() int64 { return x.now().Add(-x.ttl).UnixNano() }

// markOrphans marks incomplete sources that no process is adding for removal.
func (b *base) markOrphans(ctx context.Context, tx *sql.Tx) error {
	ids, err := numbers(ctx, tx, "SELECT id FROM sources WHERE state = ?", stateAdding)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		if b.adding[id] || !lockRange(b.lock, unix.F_WRLCK, 1+id) {
			continue
		}
		_, err := tx.ExecContext(ctx, "UPDATE sources SET state = ? WHERE id = ?", stateRemoving, id)
		lockRange(b.lock, unix.F_UNLCK, 1+id)
		if err != nil {
			return err
		}
	}
	return nil
}

// A querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// numbers returns the first column of the result of a query.
func numbers(ctx context.Context, q querier, query string, args ...any) ([]int64, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var all []int64
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, rows.Err()
}

// removeAtOnce is the maximum number of chunks that one transaction removes.
const removeAtOnce = 1000

// removeMarked removes the sources that are marked for removal, and returns larger amounts of free space to the file
// system.
func (b *base) removeMarked(ctx context.Context) error {
	ids, err := numbers(ctx, b.read, "SELECT id FROM sources WHERE state = ? ORDER BY id", stateRemoving)
	if err != nil || len(ids) == 0 {
		return err
	}
	for _, id := range ids {
		for more := true; more; {
			err := b.transact(ctx, func(tx *sql.Tx) (err error) {
				more, err = removeSome(ctx, tx, id)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	if err := b.forgetWords(ctx); err != nil {
		return err
	}
	return b.shrink(ctx)
}

// removeSome removes up to removeAtOnce chunks of a source, and with the last ones the source.
func removeSome(ctx context.Context, tx *sql.Tx, source int64) (more bool, err error) {
	rows, err := numbers(ctx, tx, "SELECT id FROM chunks WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?",
		rowOf(source, 0, false), rowOf(source, maxChunks-1, true), removeAtOnce)
	if err != nil {
		return false, err
	}
	for _, table := range []string{"DELETE FROM found WHERE rowid = ?", "DELETE FROM chunks WHERE id = ?"} {
		stmt, err := tx.PrepareContext(ctx, table)
		if err != nil {
			return false, err
		}
		for _, row := range rows {
			if _, err := stmt.Exec(row); err != nil {
				_ = stmt.Close()
				return false, err
			}
		}
		if err := stmt.Close(); err != nil {
			return false, err
		}
	}
	if len(rows) == removeAtOnce {
		return true, nil
	}
	_, err = tx.ExecContext(ctx, "DELETE FROM sources WHERE id = ?", source)
	return false, err
}

// forgetWords removes words of which no source is left. It does so only when half of the sources have been removed since the
// last time.
func (b *base) forgetWords(ctx context.Context) error {
	var sources, gone, first int64
	err := b.read.QueryRowContext(ctx, "SELECT sources, gone, (SELECT coalesce(min(id), ?) FROM sources) FROM totals",
		int64(math.MaxInt64)).Scan(&sources, &gone, &first)
	if err != nil || gone <= max(sources, seenSlack) && sources > 0 {
		return err
	}
	for more := true; more; {
		err := b.transact(ctx, func(tx *sql.Tx) (err error) {
			more, err = forgetSome(ctx, tx, first)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func forgetSome(ctx context.Context, tx *sql.Tx, first int64) (more bool, err error) {
	ids, err := numbers(ctx, tx, "SELECT id FROM words WHERE seen < ? LIMIT ?", first-seenSlack, removeAtOnce)
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
	if len(ids) == removeAtOnce {
		return true, nil
	}
	_, err = tx.ExecContext(ctx, "UPDATE totals SET gone = 0")
	return false, err
}

const (
	// A database is shrunk when at least this many of its pages, and an eighth of all, are free.
	freePages = 256
	// vacuumAtOnce is the number of pages that one transaction returns to the file system.
	vacuumAtOnce = 2000
)

// shrink returns free pages to the file system.
func (b *base) shrink(ctx context.Context) error {
	for {
		var pages, free int
		if err := b.read.QueryRowContext(ctx, "PRAGMA page_count").Scan(&pages); err != nil {
			return err
		}
		if err := b.read.QueryRowContext(ctx, "PRAGMA freelist_count").Scan(&free); err != nil {
			return err
		}
		if free < freePages || free < pages/8 {
			return nil
		}
		if err := b.vacuum(ctx); err != nil {
			return err
		}
	}
}

func (b *base) vacuum(ctx context.Context) error {
	done, err := b.beginWriting(ctx)
	if err != nil {
		return err
	}
	defer done()
	// SQLite frees one page per row that is read.
	rows, err := b.write.QueryContext(ctx, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", vacuumAtOnce))
	if err != nil {
		return err
	}
	for rows.Next() {
	}
	return errors.Join(rows.Err(), rows.Close())
}
