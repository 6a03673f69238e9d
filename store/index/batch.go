package index

import (
	"bytes"
	"compress/flate"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"corral/store/index/chunk"
	"corral/store/index/word"
)

// A batch is the data of one transaction.
type batch struct {
	rows  []row
	bytes int64 // of text
	cost  int64 // counts against the quota
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

// Approximate disk space of a chunk and of a source in addition to the text.
const (
	sectionCost = 200
	sourceCost  = 1 << 10
)

// A cutter collects chunks into batches. One goroutine uses it; another one receives the batches and returns them with
// free.
type cutter struct {
	ctx        context.Context
	source     int64
	next       int64 // index of the next chunk
	limit      int64 // maximum number of chunks
	now        *batch
	batches    chan *batch
	spare      chan *batch
	scan       word.Scanner
	vocab      vocabulary
	compressor *flate.Writer
	compressed bytes.Buffer
}

func newCutter(ctx context.Context, source, limit int64) *cutter {
	c := &cutter{ctx: ctx, source: source, limit: limit, batches: make(chan *batch), spare: make(chan *batch, 2)}
	c.compressor, _ = flate.NewWriter(nil, flate.BestSpeed) // the level is valid
	for range cap(c.spare) {
		c.spare <- &batch{}
	}
	return c
}

// emit adds a chunk to the current batch.
func (c *cutter) emit(ch chunk.Chunk) error {
	if c.next == c.limit {
		return errEnough
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
		id: rowOf(c.source, c.next, ch.Class == chunk.Code), title: ch.Title, class: ch.Class,
		first: ch.LineStart, last: ch.LineEnd, sum: checksum(ch.Title, ch.Text),
	}
	r.titleWords = c.words(ch.Title)
	r.words = c.words(ch.Text)
	r.text = c.compress(ch.Text)
	b.rows = append(b.rows, r)
	b.bytes += int64(len(ch.Text))
	b.cost += int64(len(ch.Text)+len(ch.Title)) + sectionCost
	c.next++
	if b.cost >= batchBytes {
		return c.flush()
	}
	return nil
}

// flush sends the current batch.
func (c *cutter) flush() error {
	if c.now == nil {
		return nil
	}
	select {
	case c.batches <- c.now:
		c.now = nil
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// free returns a batch that was written, for reuse.
func (c *cutter) free(b *batch) {
	clear(b.rows)
	b.rows, b.buf, b.bytes, b.cost = b.rows[:0], b.buf[:0], 0, 0
	c.spare <- b
}

// words appends the stems of a text's words to the batch, separated by spaces.
func (c *cutter) words(text string) span {
	b := c.now
	start := len(b.buf)
	c.scan.Reset(text)
	for c.scan.Next() {
		b.buf = append(c.vocab.stem(b.buf, c.scan.Word()), ' ')
	}
	return span{start, len(b.buf)}
}

func (c *cutter) compress(text string) span {
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

// checksum detects a modified chunk: SQLite has no checksums, and corrupted data may still decompress.
func checksum(title, text string) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli) // cached by the package
	return crc32.Update(crc32.Checksum([]byte(title), table), table, []byte(text))
}

// An inflater decompresses the texts of chunks.
type inflater struct {
	in  bytes.Reader
	out io.ReadCloser
	buf []byte
}

// text returns the decompressed text.
func (p *inflater) text(compressed []byte) (string, error) {
	p.in.Reset(compressed)
	if p.out == nil {
		p.out = flate.NewReader(&p.in)
		p.buf = make([]byte, chunk.MaxText+1)
	} else if err := p.out.(flate.Resetter).Reset(&p.in, nil); err != nil {
		return "", err
	}
	n, err := io.ReadFull(p.out, p.buf)
	if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) || n > chunk.MaxText || p.in.Len() > 0 {
		return "", fmt.Errorf("%w: a chunk's text", errDamaged)
	}
	return string(p.buf[:n]), nil
}

// statements are prepared statements to write a batch.
type statements struct{ chunk, found, source *sql.Stmt }

func prepareAll(db *sql.DB) (*statements, error) {
	var s statements
	for _, p := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&s.chunk, "INSERT INTO chunks(id, title, class, first, last, sum, text) VALUES(?, ?, ?, ?, ?, ?, ?)"},
		{&s.found, "INSERT INTO found(rowid, title, content) VALUES(?, ?, ?)"},
		{&s.source, "UPDATE sources SET sections = sections + ?, bytes = bytes + ?, cost = cost + ? WHERE id = ?"},
	} {
		var err error
		if *p.stmt, err = db.Prepare(p.text); err != nil {
			s.close()
			return nil, err
		}
	}
	return &s, nil
}

func (s *statements) close() {
	for _, stmt := range []*sql.Stmt{s.chunk, s.found, s.source} {
		if stmt != nil {
			_ = stmt.Close()
		}
	}
}

// batch writes rows. It takes no context, which would start a goroutine per statement, so it is not interrupted.
func (s *statements) batch(tx *sql.Tx, b *batch) error {
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
	_, err := tx.Stmt(s.source).Exec(len(b.rows), b.bytes, b.cost, sourceOf(b.rows[0].id))
	return err
}
