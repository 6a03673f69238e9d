package index

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// maxBySource is how many sources Stats names.
const maxBySource = 1000

// Stats says how much there is in a base. A base without a file has nothing.
func (x *Index) Stats(ctx context.Context, b Base) (Stats, error) {
	var s Stats
	err := x.look(ctx, b, func(b *base, tx *sql.Tx) (err error) {
		s, err = x.stats(ctx, b, tx)
		return err
	})
	if err != nil {
		return Stats{}, fmt.Errorf("index: statistics: %w", err)
	}
	return s, nil
}

// look calls f with a base and a transaction that reads. Without a base it does not.
func (x *Index) look(ctx context.Context, id Base, f func(b *base, tx *sql.Tx) error) error {
	done, err := x.begin()
	if err != nil {
		return err
	}
	defer done()
	err = x.with(ctx, id, false, func(b *base) error {
		tx, err := b.read.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		return f(b, tx)
	})
	if errors.Is(err, errNone) {
		return nil
	}
	return err
}

func (x *Index) stats(ctx context.Context, b *base, tx *sql.Tx) (Stats, error) {
	var s Stats
	var oldest, newest sql.NullInt64
	err := tx.QueryRowContext(ctx, `SELECT count(*), coalesce(sum(sections), 0), coalesce(sum(lines), 0), coalesce(sum(bytes), 0),
		min(made), max(made) FROM sources WHERE state = ? AND made >= ?`, stateThere, x.horizon()).
		Scan(&s.Sources, &s.Sections, &s.Lines, &s.Bytes, &oldest, &newest)
	if err != nil {
		return Stats{}, err
	}
	if oldest.Valid {
		s.Oldest, s.Newest = time.Unix(0, oldest.Int64), time.Unix(0, newest.Int64)
	}
	s.Disk = b.disk()
	rows, err := tx.QueryContext(ctx, `SELECT name, made, sections, lines, bytes, artifact, stream FROM sources
		WHERE state = ? AND made >= ? ORDER BY made DESC, id DESC LIMIT ?`, stateThere, x.horizon(), maxBySource)
	if err != nil {
		return Stats{}, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var o SourceStats
		var made int64
		if err := rows.Scan(&o.Name, &made, &o.Sections, &o.Lines, &o.Bytes, &o.Artifact, &o.Stream); err != nil {
			return Stats{}, err
		}
		o.Time = time.Unix(0, made)
		s.BySource = append(s.BySource, o)
	}
	return s, rows.Err()
}

// disk is how large the files of a base are together.
func (b *base) disk() int64 {
	var n int64
	names, err := files(b.dir, b.id)
	if err != nil {
		return 0
	}
	for _, name := range names {
		if st, err := look(b.dir, name); err == nil {
			n += st.Size
		}
	}
	return n
}

// Has says whether a source of an artifact can be found that is this stream of it; "" is any stream.
func (x *Index) Has(ctx context.Context, b Base, artifact, stream string) (bool, error) {
	var has bool
	err := x.look(ctx, b, func(_ *base, tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT EXISTS(SELECT 1 FROM sources WHERE artifact = ?1 AND artifact <> ''
			AND (stream = ?2 OR ?2 = '') AND state = ?3 AND made >= ?4)`, artifact, stream, stateThere, x.horizon()).Scan(&has)
	})
	if err != nil {
		return false, fmt.Errorf("index: artifact %.80q: %w", artifact, err)
	}
	return has, nil
}

// Purge removes a base and its files, even damaged ones. Every process notices that has it open; an Add that runs fails
// with ErrPurged. It returns what there was, as far as it could still be read.
func (x *Index) Purge(ctx context.Context, b Base) (removed Stats, err error) {
	done, err := x.begin()
	if err != nil {
		return Stats{}, fmt.Errorf("index: %w", err)
	}
	defer done()
	// What cannot be read is removed all the same.
	removed, _ = x.Stats(ctx, b)
	x.unfill(b)
	if err := x.purge(ctx, b); err != nil {
		return Stats{}, fmt.Errorf("index: purge: %w", err)
	}
	return removed, nil
}

func (x *Index) purge(ctx context.Context, id Base) error {
	dir, err := x.lockedDir(ctx)
	if errors.Is(err, errNone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer closeFD(dir)
	if err := removeBase(dir, id); err != nil {
		return err
	}
	x.mu.Lock()
	b := x.open[id]
	x.mu.Unlock()
	if b != nil {
		x.drop(b)
	}
	return nil
}
