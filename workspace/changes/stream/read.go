package stream

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// A Reader reads a stream.
type Reader struct {
	r       *bufio.Reader
	buf     []byte
	begun   bool
	entry   bool // an entry was read, to which a content can belong
	content bool // data may follow
}

// NewReader returns a Reader of the stream from r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 64<<10)} }

// Next returns the next record: *Entry, Content, []byte (data, valid until the next call), Conflict, Newer, or *Sum,
// which is the last. Next must not be called after the Sum or after an error.
func (r *Reader) Next() (any, error) {
	kind, b, err := r.record()
	if err == nil && !r.begun {
		if kind != recVersion || len(b) != 1 || b[0] != version {
			return nil, fmt.Errorf("%w: it does not begin with the expected version", errMalformed)
		}
		r.begun = true
		kind, b, err = r.record()
	}
	if err != nil {
		return nil, err
	}
	d := decoder{b: b}
	data := false
	var rec any
	switch kind {
	case recEntry:
		rec, r.entry = d.entry(), true
	case recContent:
		if !r.entry {
			return nil, fmt.Errorf("%w: content without an entry", errMalformed)
		}
		c := Content{New: d.flag(), Left: Left(d.below(byte(leftEnd)))}
		rec, data = c, c.Left == Here
	case recData:
		if !r.content || len(b) > MaxChunk {
			return nil, fmt.Errorf("%w: data without a content, or too long", errMalformed)
		}
		return b, nil
	case recConflict:
		c := Conflict{Reason: Reason(d.below(byte(reasonEnd))), Path: d.path()}
		if c.Reason == 0 {
			d.fail("a conflict has no reason")
		}
		rec = c
	case recNewer:
		rec = Newer{Dir: d.flag(), Touched: d.flag(), Path: d.path()}
	case recSum:
		rec = d.sum()
	default:
		return nil, fmt.Errorf("%w: unknown record %q", errMalformed, kind)
	}
	r.content = data
	if d.err == nil && len(d.b) > 0 {
		d.fail("a record is too long")
	}
	if d.err != nil {
		return nil, d.err
	}
	return rec, nil
}

// record reads one record; b is valid until the next call.
func (r *Reader) record() (kind byte, b []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return 0, nil, cut(err)
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if n > maxRecord {
		return 0, nil, fmt.Errorf("%w: a record of %d bytes", errMalformed, n)
	}
	if cap(r.buf) < int(n) {
		r.buf = make([]byte, max(int(n), 4096))
	}
	b = r.buf[:n]
	if _, err := io.ReadFull(r.r, b); err != nil {
		return 0, nil, cut(err)
	}
	return head[0], b, nil
}

// ErrCut is returned for a stream that ends without a Sum.
var ErrCut = errors.New("the answer of corral-layer was cut off")

func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrCut
	}
	return fmt.Errorf("read the answer of corral-layer: %w", err)
}

// A decoder decodes the fields of a record. It keeps its first error.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", errMalformed, what)
	}
	d.b = nil
}

func (d *decoder) take(n int) []byte {
	if n > len(d.b) {
		d.fail("a record is too short")
		return make([]byte, min(n, DigestSize)) // no fixed field is longer
	}
	p := d.b[:n]
	d.b = d.b[n:]
	return p
}

// below reads a one-byte number less than end.
func (d *decoder) below(end byte) byte {
	n := d.take(1)[0]
	if n >= end {
		d.fail("a number is out of range")
		return 0
	}
	return n
}

func (d *decoder) flag() bool { return d.below(2) == 1 }

func (d *decoder) mode() uint32 {
	m := binary.LittleEndian.Uint32(d.take(4))
	if m > 0o7777 {
		d.fail("permissions are out of range")
	}
	return m
}

// count reads an int64 that must not be negative.
func (d *decoder) count() int64 {
	n := binary.LittleEndian.Uint64(d.take(8))
	if n > math.MaxInt64 {
		d.fail("a count is negative")
		return 0
	}
	return int64(n)
}

func (d *decoder) text() string {
	n := binary.LittleEndian.Uint32(d.take(4))
	if d.err != nil || n > MaxPath || int(n) > len(d.b) {
		d.fail("a text is too long")
		return ""
	}
	return string(d.take(int(n)))
}

func (d *decoder) path() string {
	s := d.text()
	if d.err == nil {
		d.err = checkPath(s)
	}
	return s
}

func (d *decoder) entry() *Entry {
	e := &Entry{Kind: kinds[d.below(byte(len(kinds)))], Type: types[d.below(byte(len(types)))], OldType: types[d.below(byte(len(types)))]}
	e.State, e.Sensitive = State(d.below(byte(stateEnd))), d.flag()
	e.Mode, e.OldMode = d.mode(), d.mode()
	e.Size, e.OldSize, e.Below = d.count(), d.count(), d.count()
	e.Path, e.Link, e.OldLink = d.path(), d.text(), d.text()
	if e.Type == "" {
		d.fail("an entry has no type")
	}
	return e
}

func (d *decoder) sum() *Sum {
	s := &Sum{
		Entries: d.count(), Bytes: d.count(), More: d.count(), Conflicts: d.count(), Applied: d.count(), Skipped: d.count(),
		Newer:      d.count(),
		Incomplete: d.flag(),
	}
	copy(s.Digest[:], d.take(DigestSize))
	s.Missed, s.Failed = d.text(), d.text()
	return s
}
