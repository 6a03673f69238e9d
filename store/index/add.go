package index

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"corral/store/index/batch"
	"corral/store/index/chunk"
	"corral/store/index/db"
	"corral/store/index/reclaim"
	"corral/store/index/vocab"
)

// maxName is the maximum size in bytes of a label or a handle.
const maxName = 200

// maxTerms is the maximum number of Added.Terms.
const maxTerms = 40

// Add reads r to its end and adds it to a base. When it returns nil, the whole source can be found; after an error, none
// of it. It stops reading at the bounds of a base, and then sets Added.Truncated. Two calls run at once in an Index,
// others wait.
//
// It returns errors of r, of ctx and of files, and ErrPurged, ErrClosed and ErrTaken. It does not interrupt a Read that
// blocks.
func (x *Index) Add(ctx context.Context, b Base, s Source, r io.Reader) (Added, error) {
	done, err := x.begin()
	if err != nil {
		return Added{}, fmt.Errorf("index: %w", err)
	}
	defer done()
	return x.add(ctx, b, s, r)
}

func (x *Index) add(ctx context.Context, id Base, s Source, r io.Reader) (Added, error) {
	if err := s.check(); err != nil {
		return Added{}, fmt.Errorf("index: %w", err)
	}
	select {
	case x.adding <- struct{}{}:
		defer func() { <-x.adding }()
	case <-ctx.Done():
		return Added{}, fmt.Errorf("index: %w", ctx.Err())
	}
	a := &addition{index: x, source: s}
	err := x.with(ctx, id, true, func(b *base) error {
		a.base = b
		return a.run(ctx, r)
	})
	if err != nil {
		return Added{}, fmt.Errorf("index: %s: %w", s.Label, err)
	}
	return a.added, nil
}

func (s *Source) check() error {
	switch {
	case s.Label == "" || len(s.Label) > maxName || !printable(s.Label):
		return fmt.Errorf("label %.80q: must be one line of 1 to %d bytes", s.Label, maxName)
	case len(s.Artifact) > maxName || len(s.Stream) > maxName:
		return fmt.Errorf("artifact %.80q, stream %.80q: must have at most %d bytes each", s.Artifact, s.Stream, maxName)
	case s.Class != "" && s.Class != Code && s.Class != Prose:
		return fmt.Errorf("class %.80q: must be %s or %s", s.Class, Code, Prose)
	case s.Format > JSON:
		return fmt.Errorf("format %d: unknown", s.Format)
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// An addition is the state of an Add.
type addition struct {
	index  *Index
	base   *base
	source Source
	added  Added

	id   int64             // of the source; 0 until it has one
	made time.Time         // time of the source
	put  *batch.Statements // for batches
	held int64             // its cost so far
}

// run adds the source. If it fails, the part that was written is removed, now or when the base is next opened.
func (a *addition) run(ctx context.Context, r io.Reader) (err error) {
	if err := a.index.sweep(ctx, a.base); err != nil {
		return err
	}
	if err := a.index.makeRoom(ctx, a.base, batch.SourceCost, 0); err != nil {
		return err
	}
	if err := a.start(ctx); err != nil {
		return err
	}
	a.held = batch.SourceCost
	defer a.base.UnlockSource(a.id)
	defer func() {
		if err != nil && !db.Damaged(err) && !errors.Is(err, ErrPurged) {
			a.undo(ctx)
		}
		if err != nil {
			err = spentError{err}
		}
	}()
	if a.put, err = batch.Prepare(a.base.Write); err != nil {
		return err
	}
	defer a.put.Close()
	words, err := a.read(ctx, r)
	if err != nil {
		return err
	}
	if err := words.Learn(ctx, a.base.Base, a.id); err != nil {
		return err
	}
	if err := a.finish(ctx); err != nil {
		return err
	}
	_ = a.index.sweep(ctx, a.base) // removes what was replaced; the next operation will report damage
	return nil
}

// start inserts the source and locks its id: an incomplete source without a lock is an orphan.
func (a *addition) start(ctx context.Context) error {
	a.made = a.source.Time
	if a.made.IsZero() {
		a.made = a.index.now()
	}
	err := a.base.Transact(ctx, func(tx *sql.Tx) error {
		name, label, err := chooseName(ctx, tx, &a.source)
		a.added.Name = name
		if err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, `INSERT INTO sources(name, label, artifact, stream, made, state, cost)
			VALUES(?, ?, ?, ?, ?, ?, ?)`,
			a.added.Name, label, a.source.Artifact, a.source.Stream, a.made.UnixNano(), db.Adding, batch.SourceCost)
		if err != nil {
			return err
		}
		if a.id, err = res.LastInsertId(); err != nil {
			return err
		}
		if !a.base.LockSource(a.id) {
			return fmt.Errorf("source %d is already locked by another process", a.id)
		}
		return nil
	})
	if err != nil {
		a.base.UnlockSource(a.id)
	}
	return err
}

// undoTimeout bounds undoing the effects of a canceled operation.
const undoTimeout = 30 * time.Second

// undo removes the source.
func (a *addition) undo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	err := a.base.Transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE sources SET state = ? WHERE id = ?", db.Removing, a.id)
		return err
	})
	if err == nil {
		_ = reclaim.Marked(ctx, a.base.Base) // the next operation will report damage
	}
}

// read splits r into chunks. One goroutine analyzes them, and this one writes them.
func (a *addition) read(ctx context.Context, r io.Reader) (*vocab.Vocabulary, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	terms := chunk.NewTerms()
	c := batch.NewCutter(ctx, a.id, a.index.sections)
	var sum chunk.Summary
	var readErr error
	go func() {
		defer close(c.Batches)
		o := chunk.Options{Format: a.source.Format, Title: a.source.Title, Class: a.source.Class, Terms: terms}
		if sum, readErr = chunk.Split(ctxReader{ctx, r}, o, c.Emit); readErr == nil || errors.Is(readErr, batch.ErrEnough) {
			readErr = cmp.Or(c.Flush(), readErr)
		}
	}()
	var err error
	for rows := range c.Batches {
		if err == nil {
			if err = a.write(ctx, rows); err != nil {
				cancel()
			}
		}
		c.Free(rows)
	}
	if err == nil {
		err = readErr
	}
	a.added.Truncated = errors.Is(err, batch.ErrEnough)
	if err != nil && !a.added.Truncated {
		return nil, err
	}
	a.added.Lines, a.added.Bytes, a.added.Terms = sum.Lines, sum.Bytes, terms.Best(maxTerms)
	return &c.Vocab, nil
}

// A ctxReader fails once its context has ended.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (r ctxReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// write writes a batch, and evicts older sources if necessary.
func (a *addition) write(ctx context.Context, rows *batch.Batch) error {
	if a.held+rows.Cost > a.index.maxBytes {
		return batch.ErrEnough
	}
	if err := a.index.makeRoom(ctx, a.base, rows.Cost, a.id); err != nil {
		return err
	}
	err := a.base.Transact(ctx, func(tx *sql.Tx) error { return a.put.Write(tx, rows) })
	a.held += rows.Cost
	a.added.Sections += rows.Len()
	return err
}

// finish makes the source visible, and hides the one that it replaces.
func (a *addition) finish(ctx context.Context) error {
	return a.base.Transact(ctx, func(tx *sql.Tx) error {
		if a.source.Fixed {
			_, err := tx.ExecContext(ctx, "UPDATE sources SET state = ? WHERE name = ? AND label = '' AND id < ? AND state = ?",
				db.Removing, a.added.Name, a.id, db.Ready)
			if err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, "UPDATE sources SET state = ?, lines = ? WHERE id = ?", db.Ready, a.added.Lines, a.id)
		return err
	})
}
