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

	"corral/index/chunk"
	"corral/index/word"
)

// A batch is what one transaction writes.
type batch struct {
	rows  []row
	bytes int64 // of text
	cost  int64 // what the quota counts
	buf   []byte
}

// A row is a chunk as the tables have it. Its slices are of the batch's buffer.
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

// batchBytes is what a batch costs, about: a writer that waits for another waits for that much.
const batchBytes = 512 << 10

// What a section and a source take beside their text, about: rows, and what finds them.
const (
	sectionCost = 200
	sourceCost  = 1 << 10
)

// A cutter makes batches of chunks. It is used by one goroutine; batches are taken by another, which gives them back.
type cutter struct {
	ctx     context.Context
	source  int64
	next    int64 // number of the next chunk
	most    int64 // chunks
	now     *batch
	batches chan *batch
	spare   chan *batch
	scan    word.Scanner
	vocab   vocabulary
	press   *flate.Writer
	pressed bytes.Buffer
}

func newCutter(ctx context.Context, source, most int64) *cutter {
	c := &cutter{ctx: ctx, source: source, most: most, batches: make(chan *batch), spare: make(chan *batch, 2)}
	c.press, _ = flate.NewWriter(nil, flate.BestSpeed) // the level is a good one
	for range cap(c.spare) {
		c.spare <- &batch{}
	}
	return c
}

// emit takes a chunk.
func (c *cutter) emit(ch chunk.Chunk) error {
	if c.next == c.most {
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

// flush has what there is be written.
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

// free takes a batch back that was written.
func (c *cutter) free(b *batch) {
	clear(b.rows)
	b.rows, b.buf, b.bytes, b.cost = b.rows[:0], b.buf[:0], 0, 0
	c.spare <- b
}

// words appends the stems of a text's words to the batch, with spaces between.
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
	c.pressed.Reset()
	c.press.Reset(&c.pressed)
	_, err := io.WriteString(c.press, text)
	if err = errors.Join(err, c.press.Close()); err != nil {
		panic(fmt.Sprintf("a buffer takes no more: %v", err)) // bytes.Buffer has no errors
	}
	b.buf = append(b.buf, c.pressed.Bytes()...)
	return span{start, len(b.buf)}
}

// checksum is what shows that a chunk is not what was written: SQLite has none, and what is not text any more can be
// decompressed, too.
func checksum(title, text string) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli) // which is made once
	return crc32.Update(crc32.Checksum([]byte(title), table), table, []byte(text))
}

// A presser decompresses the texts of chunks, one after the other.
type presser struct {
	in  bytes.Reader
	out io.ReadCloser
	buf []byte
}

// text returns what was compressed.
func (p *presser) text(pressed []byte) (string, error) {
	p.in.Reset(pressed)
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

// statements are those that a batch is written with.
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

// batch writes rows. It is not interrupted: with a context each statement would have a goroutine.
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
