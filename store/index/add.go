package index

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
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

// errEnough is returned for a source that has the maximum number of chunks, or that exhausted the quota.
var errEnough = errors.New("the quota of the knowledge base is exhausted")

const (
	// batchBytes is the approximate cost of the chunks that one transaction writes, and thus how long another writer has to wait.
	batchBytes = 512 << 10
	// Approximate disk space of a chunk and of a source in addition to the text, in bytes.
	sectionCost = 200
	sourceCost  = 1 << 10
)

// An addition is the state of an Add.
type addition struct {
	index  *Index
	base   *base
	source Source
	added  Added

	id   int64     // of the source; 0 until it has one
	made time.Time // time of the source
	held int64     // its cost so far

	words  vocabulary
	insert *sql.Stmt // of a chunk
	batch  []row     // chunks that have not been written yet
	cost   int64     // of batch
}

// A row is a chunk as it is written.
type row struct {
	chunk
	id    int64
	parts string // of words
}

// run adds the source. If it fails, the part that was written is removed, now or when the base is next opened.
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
	defer a.base.UnlockSource(a.id)
	defer func() {
		if err != nil && !isDamaged(err) && !errors.Is(err, ErrPurged) {
			a.undo(ctx)
		}
		if err != nil {
			err = spentError{err}
		}
	}()
	if err := a.read(ctx, r); err != nil {
		return err
	}
	if err := a.words.learn(ctx, a.base.database, a.id); err != nil {
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
			a.added.Name, label, a.source.Artifact, a.source.Stream, a.made.UnixNano(), stateAdding, sourceCost)
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
		_, err := tx.ExecContext(ctx, "UPDATE sources SET state = ? WHERE id = ?", stateRemoving, a.id)
		return err
	})
	if err == nil {
		_ = removeMarked(ctx, a.base.database) // the next operation will report damage
	}
}

// read splits r into chunks, and writes them.
func (a *addition) read(ctx context.Context, r io.Reader) (err error) {
	a.insert, err = a.base.Write.PrepareContext(ctx, `INSERT INTO found(rowid, title, content, parts, class, first, last, sum)
		VALUES(?, ?, ?, ?, ?, ?, ?, ?)`)
	if err != nil {
		return err
	}
	defer func() { _ = a.insert.Close() }()
	a.words = vocabulary{}
	terms := newTopTerms()
	n := int64(0)
	sum, err := splitChunks(ctxReader{ctx, r}, a.source, func(ch chunk) error {
		if n == a.index.sections {
			return errEnough
		}
		a.batch = append(a.batch, row{ch, rowOf(a.id, n, ch.Class == Code), a.parts(ch)})
		terms.see(ch.Text)
		n++
		if a.cost += costOf(ch); a.cost < batchBytes {
			return nil
		}
		return a.write(ctx)
	})
	if err == nil || errors.Is(err, errEnough) {
		err = cmp.Or(a.write(ctx), err)
	}
	a.added.Truncated = errors.Is(err, errEnough)
	if err != nil && !a.added.Truncated {
		return err
	}
	a.added.Lines, a.added.Bytes, a.added.Terms = sum.Lines, sum.Bytes, terms.Best(maxTerms)
	return nil
}

func costOf(ch chunk) int64 { return int64(len(ch.Text)+len(ch.Title)) + sectionCost }

// parts returns the parts of the words of a chunk, and learns the words.
func (a *addition) parts(ch chunk) string {
	var parts []string
	for _, text := range []string{ch.Title, ch.Text} {
		eachWord(text, func(word string) {
			of := partsOf(word)
			a.words.add(word)
			for _, p := range of {
				a.words.add(p)
			}
			parts = append(parts, of...)
		})
	}
	return strings.Join(parts, " ")
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

// write writes the batch, and evicts older sources if necessary.
func (a *addition) write(ctx context.Context) error {
	if len(a.batch) == 0 {
		return nil
	}
	if a.held+a.cost > a.index.maxBytes {
		a.batch, a.cost = nil, 0
		return errEnough
	}
	if err := a.index.makeRoom(ctx, a.base, a.cost, a.id); err != nil {
		return err
	}
	err := a.base.Transact(ctx, a.writeBatch)
	a.held += a.cost
	a.added.Sections += len(a.batch)
	a.batch, a.cost = a.batch[:0], 0
	return err
}

// writeBatch takes no context, which would start a goroutine per statement, so it is not interrupted.
func (a *addition) writeBatch(tx *sql.Tx) error {
	insert := tx.Stmt(a.insert)
	text := 0
	for i := range a.batch {
		r := &a.batch[i]
		text += len(r.Text)
		if _, err := insert.Exec(r.id, r.Title, r.Text, r.parts, r.Class, r.LineStart, r.LineEnd, checksum(r.Title, r.Text)); err != nil {
			return err
		}
	}
	_, err := tx.Exec("UPDATE sources SET sections = sections + ?, bytes = bytes + ?, cost = cost + ? WHERE id = ?",
		len(a.batch), text, a.cost, a.id)
	return err
}

// checksum detects a modified chunk: SQLite has no checksums.
func checksum(title, text string) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli) // cached by the package
	return crc32.Update(crc32.Checksum([]byte(title), table), table, []byte(text))
}

// finish makes the source visible, and hides the one that it replaces.
func (a *addition) finish(ctx context.Context) error {
	return a.base.Transact(ctx, func(tx *sql.Tx) error {
		if a.source.Fixed {
			_, err := tx.ExecContext(ctx, "UPDATE sources SET state = ? WHERE name = ? AND label = '' AND id < ? AND state = ?",
				stateRemoving, a.added.Name, a.id, stateReady)
			if err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, "UPDATE sources SET state = ?, lines = ? WHERE id = ?", stateReady, a.added.Lines, a.id)
		return err
	})
}
