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

// sweep removes what expired, what was replaced, and what processes left half added that were killed. What cannot be
// removed now is not found either, and left to the next sweep. What is much is removed in the background. The error is
// of a base that is damaged.
func (x *Index) sweep(ctx context.Context, b *base) error {
	err := b.transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE sources SET state = ? WHERE made < ? AND state = ?", stateGoing, x.horizon(), stateThere)
		if err != nil {
			return err
		}
		return b.orphans(ctx, tx)
	})
	var going int64
	if err == nil {
		err = b.read.QueryRowContext(ctx, "SELECT coalesce(sum(sections), 0) FROM sources WHERE state = ?", stateGoing).Scan(&going)
	}
	switch {
	case err != nil:
	case going > removeAtOnce:
		x.removeLater(b)
	default:
		err = b.removeGoing(ctx)
	}
	if damaged(err) {
		return err
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrPurged) {
		x.log.Warn("a knowledge base is not swept", slog.String("error", err.Error()))
	}
	return nil
}

// removeLater removes what is going, in the background.
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
		err := b.removeGoing(x.ctx)
		x.mu.Lock()
		b.removing = false
		x.mu.Unlock()
		switch {
		case damaged(err):
			x.replace(x.ctx, b, err)
		case err != nil && x.ctx.Err() == nil && !errors.Is(err, ErrPurged):
			x.log.Warn("a knowledge base is not swept", slog.String("error", err.Error()))
		}
	})
}

// horizon is when a source was made, in nanoseconds of Unix time, that expires now.
func (x *Index) horizon() int64 { return x.now().Add(-x.ttl).UnixNano() }

// orphans finds the sources that nobody adds any more.
func (b *base) orphans(ctx context.Context, tx *sql.Tx) error {
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
		_, err := tx.ExecContext(ctx, "UPDATE sources SET state = ? WHERE id = ?", stateGoing, id)
		lockRange(b.lock, unix.F_UNLCK, 1+id)
		if err != nil {
			return err
		}
	}
	return nil
}

// A querier is a database, or a transaction of it.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// numbers returns the first column of what a query finds.
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

// removeAtOnce is how many chunks a transaction removes at most.
const removeAtOnce = 1000

// removeGoing removes the sources that are going. The disk gets back what is much.
func (b *base) removeGoing(ctx context.Context) error {
	ids, err := numbers(ctx, b.read, "SELECT id FROM sources WHERE state = ? ORDER BY id", stateGoing)
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
	if err := b.forget(ctx); err != nil {
		return err
	}
	return b.shrink(ctx)
}

// removeSome removes some chunks of a source; the source itself with the last.
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

// forget removes the words that only sources had that are gone, when half of the sources are gone since it last did.
func (b *base) forget(ctx context.Context) error {
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
	// A database is made smaller when that many of its pages are free, and an eighth of all.
	freePages = 256
	// vacuumAtOnce is how many pages are given back in one transaction.
	vacuumAtOnce = 2000
)

// shrink gives pages back to the disk that are free.
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
	done, err := b.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	// Each row of the answer is a page; one that is not read is not given back.
	rows, err := b.write.QueryContext(ctx, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", vacuumAtOnce))
	if err != nil {
		return err
	}
	for rows.Next() {
	}
	return errors.Join(rows.Err(), rows.Close())
}
