package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

type hash [sha256.Size]byte

// A position is the end of a record, where the next one continues the audit log. The zero value with file 1 is the
// beginning.
type position struct {
	seq  uint64
	hash hash   // of the record's line
	file uint64 // current file, named by the seq of its first record
	size int64  // of the file up to this position
}

// after returns the position after a record that was read at p. After the last record of a file, that is the
// beginning of the next file, whether that exists or not.
func (p position) after(f *fixed, line []byte) position {
	next := position{f.seq, sha256.Sum256(line), p.file, p.size + int64(len(line)) + 1}
	if f.event == Rotated {
		next.file, next.size = f.seq+1, 0
	}
	return next
}

// maxLine is the maximum length of a record with its newline. The bounds of texts keep our own records below it,
// however they are escaped.
const maxLine = 128 << 10

// fixed has the first fields of a record.
type fixed struct {
	seq           uint64
	prev          hash
	event         Event
	instance, job string
	of            uint64
}

// parse parses the fixed fields of a line, without its newline. A line that it rejects was not written by this
// package.
func parse(line []byte) (fixed, bool) {
	var f fixed
	if len(line) == 0 || line[len(line)-1] != '}' || bytes.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return f, false
	}
	s := scanner{b: line}
	s.literal(`{"seq":`)
	f.seq = s.number()
	s.literal(`,"prev":"`)
	s.hash(&f.prev)
	s.literal(`","time":"`)
	s.take(len(timeLayout))
	s.literal(`","event":"`)
	f.event = Event(s.name())
	s.literal(`,"instance":"`)
	f.instance = s.name()
	if s.has(`,"job":"`) {
		f.job = s.name()
	}
	if s.has(`,"of":`) {
		f.of = s.number()
	}
	return f, !s.bad && f.seq > 0
}

// A scanner consumes a line from its beginning.
type scanner struct {
	b   []byte
	bad bool
}

func (s *scanner) take(n int) []byte {
	if s.bad || n > len(s.b) {
		s.bad = true
		return nil
	}
	v := s.b[:n]
	s.b = s.b[n:]
	return v
}

func (s *scanner) has(literal string) bool {
	if s.bad || !bytes.HasPrefix(s.b, []byte(literal)) {
		return false
	}
	s.b = s.b[len(literal):]
	return true
}

func (s *scanner) literal(text string) { s.bad = !s.has(text) }

// number parses a number in the form in which it is written: no sign, no leading zero.
func (s *scanner) number() uint64 {
	n := 0
	for n < len(s.b) && s.b[n] >= '0' && s.b[n] <= '9' {
		n++
	}
	digits := s.take(n)
	v, err := strconv.ParseUint(string(digits), 10, 63)
	if err != nil || len(digits) > 1 && digits[0] == '0' {
		s.bad = true
	}
	return v
}

func (s *scanner) hash(h *hash) {
	digits := s.take(2 * len(h))
	if bytes.ContainsAny(digits, "ABCDEF") {
		s.bad = true
	}
	if _, err := hex.Decode(h[:], digits); err != nil {
		s.bad = true
	}
}

// name parses a name and the quote that ends it.
func (s *scanner) name() string {
	n := bytes.IndexByte(s.b[:min(len(s.b), maxName+1)], '"')
	if s.bad || n < 0 || !isName(string(s.b[:n])) {
		s.bad = true
		return ""
	}
	return string(s.take(n + 1)[:n])
}

// lines reads lines of bounded length.
type lines struct{ r *bufio.Reader }

func newLines(r io.Reader) *lines { return &lines{bufio.NewReaderSize(r, maxLine)} }

// next returns a line without its newline, valid until the next call, or io.EOF. A line that is too long, or the last
// one without a newline, is returned in part, with whole = false. n is the number of bytes read.
func (l *lines) next() (line []byte, whole bool, n int64, err error) {
	line, err = l.r.ReadSlice('\n')
	n = int64(len(line))
	switch {
	case err == nil:
		return line[:n-1], true, n, nil
	case errors.Is(err, io.EOF) && n > 0:
		return line, false, n, nil
	case !errors.Is(err, bufio.ErrBufferFull):
		return nil, false, 0, err
	}
	line = line[:80:80]
	for errors.Is(err, bufio.ErrBufferFull) {
		var more []byte
		more, err = l.r.ReadSlice('\n')
		n += int64(len(more))
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return line, false, n, err
}

// files opens a file of the audit log for reading, by the seq of its first record. The error is os.ErrNotExist if
// there is none.
type files func(first uint64) (*os.File, error)

// A flaw is a line that does not continue the audit log.
type flaw struct {
	last   bool // torn, without a newline: it may still be being written
	torn   bool // not a record; otherwise a record that does not follow the previous one
	first  fixed
	after  position // the position after it, if its own seq is believed
	behind int64    // bytes of the file up to its end
}

// walk reads the records after at, through all files, and calls f for each that continues the audit log. It stops at
// the end of the audit log, or at the first flaw.
func walk(open files, at position, f func(fixed)) (position, *flaw, error) {
	for {
		file, err := open(at.file)
		if errors.Is(err, os.ErrNotExist) && at.size == 0 {
			return at, nil, nil
		}
		if err != nil {
			return at, nil, fmt.Errorf("audit: %w", err)
		}
		next, flawed, err := walkFile(file, at, f)
		file.Close()
		if flawed != nil || err != nil || next.file == at.file {
			return next, flawed, err
		}
		at = next
	}
}

func walkFile(file *os.File, at position, f func(fixed)) (position, *flaw, error) {
	name := at.file
	if info, err := file.Stat(); err == nil && info.Size() == at.size { // common case: avoids allocating a buffer
		return at, nil, nil
	}
	l := newLines(io.NewSectionReader(file, at.size, 1<<62))
	for at.file == name {
		line, whole, n, err := l.next()
		if errors.Is(err, io.EOF) {
			return at, nil, nil
		}
		if err != nil {
			return at, nil, fmt.Errorf("audit: %w", err)
		}
		first, ok := parse(line)
		if !whole || !ok {
			return at, &flaw{torn: true, last: !whole && n < maxLine, after: position{at.seq, at.hash, at.file, at.size + n}, behind: at.size + n}, nil
		}
		next := at.after(&first, line)
		if first.seq != at.seq+1 || first.prev != at.hash {
			return at, &flaw{first: first, after: next, behind: at.size + n}, nil
		}
		f(first)
		at = next
	}
	return at, nil, nil
}
