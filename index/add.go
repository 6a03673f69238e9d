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

	"golang.org/x/sys/unix"

	"corral/index/chunk"
)

// maxName is how many bytes a label or handle has at most.
const maxName = 200

// maxTerms is how many words Added tells of a source.
const maxTerms = 40

// Add reads r to its end and has the base have it. When it returns, all of the source is found; after an error, nothing
// is. More than a base may have is not read: Added.Truncated. Two run at once in an Index, others wait.
//
// The errors are those of r and of ctx, ErrPurged, ErrClosed, ErrTaken, and of files. A Read that waits is not interrupted.
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
		return fmt.Errorf("label %.80q: it must have 1 to %d bytes, on one line", s.Label, maxName)
	case len(s.Artifact) > maxName || len(s.Stream) > maxName:
		return fmt.Errorf("artifact %.80q, stream %.80q: they may have %d bytes", s.Artifact, s.Stream, maxName)
	case s.Class != "" && s.Class != Code && s.Class != Prose:
		return fmt.Errorf("class %.80q: it is %s or %s", s.Class, Code, Prose)
	case s.Format > JSON:
		return fmt.Errorf("format %d: there is none", s.Format)
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// An addition is a source on its way into a base.
type addition struct {
	index  *Index
	base   *base
	source Source
	added  Added

	id   int64       // of the source; 0 before it has one
	made time.Time   // of the source
	put  *statements // for batches
	held int64       // what it counts for in the quota by now
}

// run adds the source. What of it is there, if it fails, goes again: now, or when the base is next opened.
func (a *addition) run(ctx context.Context, r io.Reader) (err error) {
	if err := a.index.sweep(ctx, a.base); err != nil {
		return err
	}
	if err := a.index.makeRoom(ctx, a.base, sourceCost, 0); err != nil {
		return err
	}
	if err := a.start(ctx); err != nil {
		return err
	}
	a.held = sourceCost
	defer a.end()
	defer func() {
		if err != nil && !damaged(err) && !errors.Is(err, ErrPurged) {
			a.undo(ctx)
		}
		if err != nil {
			err = spentError{err}
		}
	}()
	if a.put, err = prepareAll(a.base.write); err != nil {
		return err
	}
	defer a.put.close()
	vocab, err := a.read(ctx, r)
	if err != nil {
		return err
	}
	if err := a.base.learn(ctx, vocab, a.id); err != nil {
		return err
	}
	if err := a.finish(ctx); err != nil {
		return err
	}
	_ = a.index.sweep(ctx, a.base) // what it replaced; damage shows to whoever is next
	return nil
}

// start gives the source a name and an id, and locks it: a source that is not all there and has no lock is nobody's.
func (a *addition) start(ctx context.Context) error {
	a.made = a.source.Time
	if a.made.IsZero() {
		a.made = a.index.now()
	}
	err := a.base.transact(ctx, func(tx *sql.Tx) error {
		label, err := a.name(ctx, tx)
		if err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, `INSERT INTO sources(name, label, artifact, stream, made, state, cost)
			VALUES(?, ?, ?, ?, ?, ?, ?)`,
			a.added.Name, label, a.source.Artifact, a.source.Stream, a.made.UnixNano(), stateAdding, sourceCost)
		if err != nil {
			return err
		}
		if a.id, err = res.LastInsertId(); err != nil {
			return err
		}
		a.base.mu.Lock()
		a.base.adding[a.id] = true
		a.base.mu.Unlock()
		if !lockRange(a.base.lock, unix.F_WRLCK, 1+a.id) {
			return fmt.Errorf("source %d is locked by another process", a.id)
		}
		return nil
	})
	if err != nil {
		a.end()
	}
	return err
}

// end lets go of the source's lock.
func (a *addition) end() {
	a.base.mu.Lock()
	delete(a.base.adding, a.id)
	a.base.mu.Unlock()
	lockRange(a.base.lock, unix.F_UNLCK, 1+a.id)
}

// undo has the source gone.
func (a *addition) undo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoFor)
	defer cancel()
	err := a.base.transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE sources SET state = ? WHERE id = ?", stateGoing, a.id)
		return err
	})
	if err == nil {
		_ = a.base.removeGoing(ctx) // damage shows to whoever is next
	}
}

var errEnough = errors.New("there is no room for more")

// read divides r into chunks, has them analyzed in one goroutine, and writes them in this one.
func (a *addition) read(ctx context.Context, r io.Reader) (*vocabulary, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	terms := chunk.NewTerms()
	c := newCutter(ctx, a.id, a.index.sections)
	var sum chunk.Summary
	var readErr error
	go func() {
		defer close(c.batches)
		o := chunk.Options{Format: a.source.Format, Title: a.source.Title, Class: a.source.Class, Terms: terms}
		if sum, readErr = chunk.Split(ctxReader{ctx, r}, o, c.emit); readErr == nil || errors.Is(readErr, errEnough) {
			readErr = cmp.Or(c.flush(), readErr)
		}
	}()
	var err error
	for rows := range c.batches {
		if err == nil {
			if err = a.write(ctx, rows); err != nil {
				cancel()
			}
		}
		c.free(rows)
	}
	if err == nil {
		err = readErr
	}
	a.added.Truncated = errors.Is(err, errEnough)
	if err != nil && !a.added.Truncated {
		return nil, err
	}
	a.added.Lines, a.added.Bytes, a.added.Terms = sum.Lines, sum.Bytes, terms.Best(maxTerms)
	return &c.vocab, nil
}

// A ctxReader ends with its context.
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

// write brings a batch into the base, for which older sources may have to go.
func (a *addition) write(ctx context.Context, rows *batch) error {
	if a.held+rows.cost > a.index.maxBytes {
		return errEnough
	}
	if err := a.index.makeRoom(ctx, a.base, rows.cost, a.id); err != nil {
		return err
	}
	err := a.base.transact(ctx, func(tx *sql.Tx) error { return a.put.batch(tx, rows) })
	a.held += rows.cost
	a.added.Sections += len(rows.rows)
	return err
}

// finish has the source found, and what had its name not any more.
func (a *addition) finish(ctx context.Context) error {
	return a.base.transact(ctx, func(tx *sql.Tx) error {
		if a.source.Fixed {
			_, err := tx.ExecContext(ctx, "UPDATE sources SET state = ? WHERE name = ? AND label = '' AND id < ? AND state = ?",
				stateGoing, a.added.Name, a.id, stateThere)
			if err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, "UPDATE sources SET state = ?, lines = ? WHERE id = ?", stateThere, a.added.Lines, a.id)
		return err
	})
}
