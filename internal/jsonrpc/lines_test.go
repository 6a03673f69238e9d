package jsonrpc

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestLineReader: lines are read whole, and one that is too long is skipped and seen in pieces.
func TestLineReader(t *testing.T) {
	const maxLine = 100_000 // larger than the read buffer
	long := strings.Repeat("x", maxLine)
	const tooLong = "\x00too long"
	for _, tt := range []struct {
		name, in string
		want     []string
	}{
		{"nothing", "", nil},
		{"a line", "{}\n", []string{"{}"}},
		{"two lines", "a\nb\n", []string{"a", "b"}},
		{"no end", "a\nb", []string{"a", "b"}},
		{"empty lines", "\n\na\n", []string{"", "", "a"}},
		{"of a foreign system", "a\r\n", []string{"a\r"}},
		{"the longest", long + "\nb\n", []string{long, "b"}},
		{"the longest without an end", long, []string{long}},
		{"too long", long + "y\nb\n", []string{tooLong, "b"}},
		{"much too long", long + long + long + "\nb\n" + long + "z\nc", []string{tooLong, "b", tooLong, "c"}},
		{"too long without an end", long + long, []string{tooLong}},
	} {
		for reader, r := range map[string]io.Reader{
			"whole": strings.NewReader(tt.in), "halves": iotest.HalfReader(strings.NewReader(tt.in)), "bytes": iotest.OneByteReader(strings.NewReader(tt.in)),
		} {
			l := NewLineReader(r, maxLine)
			for n := 0; ; n++ {
				line, err := l.Next()
				if errors.Is(err, io.EOF) {
					if n != len(tt.want) {
						t.Errorf("%s, %s: %d lines, want %d", tt.name, reader, n, len(tt.want))
					}
					break
				}
				if errors.Is(err, ErrTooLong) {
					line, err = []byte(tooLong), nil
				}
				if err != nil || n >= len(tt.want) || string(line) != tt.want[n] {
					t.Errorf("%s, %s, line %d: %.20q of %d, %v", tt.name, reader, n, line, len(line), err)
					break
				}
			}
		}
	}
	l := NewLineReader(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("abc\n"))), maxLine)
	if _, err := l.Next(); !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("%v", err)
	}
}

// TestHoldAndSkipped: memory is counted before it is used, and each byte of a line that is too long is seen.
func TestHoldAndSkipped(t *testing.T) {
	l := NewLineReader(strings.NewReader("abc\n"+strings.Repeat("x", 200_000)+"y\nd"), 100_000)
	held, most, seen := 0, 0, 0
	l.Hold = func(n int) error {
		held, most = n, max(most, n)
		return nil
	}
	l.Skipped = func(piece []byte) { seen += len(piece) }
	for _, want := range []string{"abc", "", "d"} {
		line, err := l.Next()
		if want == "" && !errors.Is(err, ErrTooLong) || want != "" && (err != nil || string(line) != want || held < len(want)) {
			t.Errorf("%q, %v; %d bytes are held", line, err, held)
		}
	}
	if most > 100_000 || seen != 200_002 {
		t.Errorf("%d bytes held, %d seen", most, seen)
	}
	l.Hold = func(int) error { return io.ErrShortBuffer }
	if _, err := l.Next(); !errors.Is(err, io.ErrShortBuffer) {
		t.Errorf("%v", err)
	}
}
