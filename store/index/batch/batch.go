// Package batch prepares chunks to be written to a knowledge base, and writes them, a batch per transaction.
package batch

import (
	"bytes"
	"compress/flate"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"

	"corral/store/index/chunk"
	"corral/store/index/db"
	"corral/store/index/vocab"
	"corral/store/index/word"
)

// ErrEnough is returned for a source that has the maximum number of chunks, or that exhausted the quota.
var ErrEnough = errors.New("the quota of the knowledge base is exhausted")

// A Batch is the data of one transaction.
type Batch struct {
	Cost  int64 // counts against the quota
	rows  []row
	bytes int64 // of text
	buf   []byte
}

// A row is a chunk as it is written. Its spans refer to the batch's buffer.
type row struct {
	id          int64
	title       string
	class       string
	first, last int64
	sum         uint32
	text        span // compressed
	titleWords  span
	words       span
}

type span struct{ start, end int }

// batchBytes is the approximate cost of a batch, and thus how long another writer has to wait.
const batchBytes = 512 << 10

// Approximate disk space of a chunk and of a source in addition to the text, in bytes.
const (
	sectionCost = 200
	SourceCost  = 1 << 10
)

// A Cutter collects chunks into batches. One goroutine uses it; another one receives the batches and returns them with
// Free.
type Cutter struct {
	ctx        context.Context
	source     int64
	next       int64 // index of the next chunk
	limit      int64 // maximum number of chunks
	now        *Batch
	Batches    chan *Batch
	spare      chan *Batch
	scan       word.Scanner
	Vocab      vocab.Vocabulary
	compressor *flate.Writer
	compressed bytes.Buffer
}

// NewCutter returns a Cutter for the chunks of a source, at most limit.
func NewCutter(ctx context.Context, source, limit int64) *Cutter {
	c := &Cutter{ctx: ctx, source: source, limit: limit, Batches: make(chan *Batch), spare: make(chan *Batch, 2)}
	c.compressor, _ = flate.NewWriter(nil, flate.BestSpeed) // the level is valid
	for range cap(c.spare) {
		c.spare <- &Batch{}
	}
	return c
}

// Emit adds a chunk to the current batch.
func (c *Cutter) Emit(ch chunk.Chunk) error {
	if c.next == c.limit {
		return ErrEnough
	}
	if c.now == nil {
		select {
		case c.now = <-c.spare:
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
	b := c.now
	r := row{
		id: db.RowOf(c.source, c.next, ch.Class == chunk.Code), title: ch.Title, class: ch.Class,
		first: ch.LineStart, last: ch.LineEnd, sum: db.Checksum(ch.Title, ch.Text),
	}
	r.titleWords = c.words(ch.Title)
	r.words = c.words(ch.Text)
	r.text = c.compress(ch.Text)
	b.rows = append(b.rows, r)
	b.bytes += int64(len(ch.Text))
	b.Cost += int64(len(ch.Text)+len(ch.Title)) + sectionCost
	c.next++
	if b.Cost >= batchBytes {
		return c.Flush()
	}
	return nil
}

// Flush sends the current batch.
func (c *Cutter) Flush() error {
	if c.now == nil {
		return nil
	}
	select {
	case c.Batches <- c.now:
		c.now = nil
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// Len returns the number of chunks.
func (b *Batch) Len() int { return len(b.rows) }

// Free returns a batch that was written, for reuse.
func (c *Cutter) Free(b *Batch) {
	clear(b.rows)
	b.rows, b.buf, b.bytes, b.Cost = b.rows[:0], b.buf[:0], 0, 0
	c.spare <- b
}

// words appends the stems of a text's words to the batch, separated by spaces.
func (c *Cutter) words(text string) span {
	b := c.now
	start := len(b.buf)
	c.scan.Reset(text)
	for c.scan.Next() {
		b.buf = append(c.Vocab.Stem(b.buf, c.scan.Word()), ' ')
	}
	return span{start, len(b.buf)}
}

func (c *Cutter) compress(text string) span {
	b := c.now
	start := len(b.buf)
	c.compressed.Reset()
	c.compressor.Reset(&c.compressed)
	_, err := io.WriteString(c.compressor, text)
	if err = errors.Join(err, c.compressor.Close()); err != nil {
		panic(fmt.Sprintf("write to a buffer: %v", err)) // a bytes.Buffer returns no errors
	}
	b.buf = append(b.buf, c.compressed.Bytes()...)
	return span{start, len(b.buf)}
}

// Statements are prepared statements to write a batch.
type Statements struct{ chunk, found, source *sql.Stmt }

// Prepare prepares the statements. The caller must close them.
func Prepare(d *sql.DB) (*Statements, error) {
	var s Statements
	for _, p := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&s.chunk, "INSERT INTO chunks(id, title, class, first, last, sum, text) VALUES(?, ?, ?, ?, ?, ?, ?)"},
		{&s.found, "INSERT INTO found(rowid, title, content) VALUES(?, ?, ?)"},
		{&s.source, "UPDATE sources SET sections = sections + ?, bytes = bytes + ?, cost = cost + ? WHERE id = ?"},
	} {
		var err error
		if *p.stmt, err = d.Prepare(p.text); err != nil {
			s.Close()
			return nil, err
		}
	}
	return &s, nil
}

// Close closes the statements.
func (s *Statements) Close() {
	for _, stmt := range []*sql.Stmt{s.chunk, s.found, s.source} {
		if stmt != nil {
			_ = stmt.Close()
		}
	}
}

// Write writes a batch. It takes no context, which would start a goroutine per statement, so it is not interrupted.
func (s *Statements) Write(tx *sql.Tx, b *Batch) error {
	chunks, found := tx.Stmt(s.chunk), tx.Stmt(s.found)
	for i := range b.rows {
		r := &b.rows[i]
		_, err := chunks.Exec(r.id, r.title, r.class, r.first, r.last, r.sum, b.buf[r.text.start:r.text.end])
		if err != nil {
			return err
		}
		_, err = found.Exec(r.id, string(b.buf[r.titleWords.start:r.titleWords.end]), string(b.buf[r.words.start:r.words.end]))
		if err != nil {
			return err
		}
	}
	if len(b.rows) == 0 {
		return nil
	}
	_, err := tx.Stmt(s.source).Exec(len(b.rows), b.bytes, b.Cost, db.SourceOf(b.rows[0].id))
	return err
}
