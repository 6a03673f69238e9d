package index

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Search returns the chunks that match a query best. No query text is invalid. It finds everything that was added before
// it was called. Of chunks with the same text, only the newest is a hit.
func (x *Index) Search(ctx context.Context, b Base, q Query) (*Found, error) {
	found := &Found{Empty: true} // unless the base exists, and is not removed as damaged meanwhile
	err := x.view(ctx, b, func(_ *base, tx *sql.Tx) error {
		f, err := runQuery(ctx, tx, x.horizon(), q)
		if err == nil {
			found = f
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("index: search: %w", err)
	}
	return found, nil
}

// Stats are the sizes of a base; zero if it is empty.
type Stats struct {
	Sources, Sections int
	Lines, Bytes      int64 // of text
	Disk              int64 // bytes of its files
	Oldest, Newest    time.Time
	BySource          []SourceStats // the newest first, at most 1000
}

// SourceStats are the sizes of a source.
type SourceStats struct {
	Name             string
	Time             time.Time
	Sections         int
	Lines, Bytes     int64
	Artifact, Stream string
}

// maxBySource is the maximum number of sources listed in Stats.
const maxBySource = 1000

// Stats returns the sizes of a base. They are zero if it has no file.
func (x *Index) Stats(ctx context.Context, b Base) (Stats, error) {
	var s Stats
	err := x.view(ctx, b, func(b *base, tx *sql.Tx) (err error) {
		s, err = x.stats(ctx, b, tx)
		return err
	})
	if err != nil {
		return Stats{}, fmt.Errorf("index: statistics: %w", err)
	}
	return s, nil
}

// view calls f with a base in a read transaction. If the base does not exist, it returns nil without calling f.
func (x *Index) view(ctx context.Context, id Base, f func(b *base, tx *sql.Tx) error) error {
	done, err := x.begin()
	if err != nil {
		return err
	}
	defer done()
	err = x.with(ctx, id, false, func(b *base) error {
		tx, err := b.Read.BeginTx(ctx, nil)
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
		min(made), max(made) FROM sources WHERE state = ? AND made >= ?`, stateReady, x.horizon()).
		Scan(&s.Sources, &s.Sections, &s.Lines, &s.Bytes, &oldest, &newest)
	if err != nil {
		return Stats{}, err
	}
	if oldest.Valid {
		s.Oldest, s.Newest = time.Unix(0, oldest.Int64), time.Unix(0, newest.Int64)
	}
	s.Disk = b.Disk()
	rows, err := tx.QueryContext(ctx, `SELECT name, made, sections, lines, bytes, artifact, stream FROM sources
		WHERE state = ? AND made >= ? ORDER BY made DESC, id DESC LIMIT ?`, stateReady, x.horizon(), maxBySource)
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

// Has reports whether a source with this stream of an artifact can be found; "" means any stream.
func (x *Index) Has(ctx context.Context, b Base, artifact, stream string) (bool, error) {
	var has bool
	err := x.view(ctx, b, func(_ *base, tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `SELECT EXISTS(SELECT 1 FROM sources WHERE artifact = ?1 AND artifact <> ''
			AND (stream = ?2 OR ?2 = '') AND state = ?3 AND made >= ?4)`, artifact, stream, stateReady, x.horizon()).Scan(&has)
	})
	if err != nil {
		return false, fmt.Errorf("index: artifact %.80q: %w", artifact, err)
	}
	return has, nil
}

// Purge removes a base and its files, even if it is damaged. Every process that has it open notices; a running Add fails
// with ErrPurged. Purge returns the former sizes, as far as they could be read.
func (x *Index) Purge(ctx context.Context, b Base) (removed Stats, err error) {
	done, err := x.begin()
	if err != nil {
		return Stats{}, fmt.Errorf("index: %w", err)
	}
	defer done()
	// A failure to read does not prevent the removal.
	removed, _ = x.Stats(ctx, b)
	x.cancelRebuild(b)
	if err := x.purge(ctx, b); err != nil {
		return Stats{}, fmt.Errorf("index: purge: %w", err)
	}
	return removed, nil
}

func (x *Index) purge(ctx context.Context, id Base) error {
	if err := removeFiles(ctx, x.state, id); err != nil {
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
