package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// A Hash is the SHA-256 of a record's line, without its newline.
type Hash [sha256.Size]byte

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hash) UnmarshalText(digits []byte) error {
	if len(digits) != hex.EncodedLen(len(h)) {
		return hex.ErrLength
	}
	_, err := hex.Decode(h[:], digits)
	return err
}

// A Position is the end of a record, where the next one continues the audit log. The zero value with File 1 is the
// beginning.
type Position struct {
	Seq  uint64
	Hash Hash   // of the record's line
	File uint64 // current file, named by the seq of its first record
	Size int64  // of the file up to this position
}

// After returns the position after a record that was read at p. After the last record of a file, that is the
// beginning of the next file, whether that exists or not.
func (p Position) After(f *fixedFields, line []byte) Position {
	next := Position{f.Seq, sha256.Sum256(line), p.File, p.Size + int64(len(line)) + 1}
	if f.Event == Rotated {
		next.File, next.Size = f.Seq+1, 0
	}
	return next
}

// MaxLine is the maximum length of a record with its newline. The bounds of texts keep our own records below it,
// however they are escaped.
const MaxLine = 128 << 10

// fixedFields has the first fields of a record.
type fixedFields struct {
	Seq           uint64
	Prev          Hash
	Event         Event
	Instance, Job string
	Of            uint64 // seq of the decided record that it closes, or 0
}

// parseLine parses the fixed fields of a line, without its newline. A line that it rejects was not written by this
// package.
func parseLine(line []byte) (fixedFields, bool) {
	var f fixedFields
	if len(line) == 0 || line[len(line)-1] != '}' || bytes.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return f, false
	}
	s := fieldScanner{b: line}
	s.literal(`{"seq":`)
	f.Seq = s.number()
	s.literal(`,"prev":"`)
	s.hash(&f.Prev)
	s.literal(`","time":"`)
	s.take(len(timeLayout))
	s.literal(`","event":"`)
	f.Event = Event(s.name())
	s.literal(`,"instance":"`)
	f.Instance = s.name()
	if s.has(`,"job":"`) {
		f.Job = s.name()
	}
	if s.has(`,"of":`) {
		f.Of = s.number()
	}
	return f, !s.bad && f.Seq > 0
}

// A scanner consumes a line from its beginning.
type fieldScanner struct {
	b   []byte
	bad bool
}

func (s *fieldScanner) take(n int) []byte {
	if s.bad || n > len(s.b) {
		s.bad = true
		return nil
	}
	v := s.b[:n]
	s.b = s.b[n:]
	return v
}

func (s *fieldScanner) has(literal string) bool {
	if s.bad || !bytes.HasPrefix(s.b, []byte(literal)) {
		return false
	}
	s.b = s.b[len(literal):]
	return true
}

func (s *fieldScanner) literal(text string) { s.bad = !s.has(text) }

// number parses a number in the form in which it is written: no sign, no leading zero.
func (s *fieldScanner) number() uint64 {
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

func (s *fieldScanner) hash(h *Hash) {
	digits := s.take(2 * len(h))
	if bytes.ContainsAny(digits, "ABCDEF") {
		s.bad = true
	}
	if _, err := hex.Decode(h[:], digits); err != nil {
		s.bad = true
	}
}

// name parses a name and the quote that ends it.
func (s *fieldScanner) name() string {
	n := bytes.IndexByte(s.b[:min(len(s.b), MaxName+1)], '"')
	if s.bad || n < 0 || !IsName(string(s.b[:n])) {
		s.bad = true
		return ""
	}
	return string(s.take(n + 1)[:n])
}
