package index

import "bytes"

// Overlap of the parts of a long line: each run of minCommon bytes is whole in one of them.
const (
	minCommon = 128
	maxCommon = 256
)

// A line is a line of clean text, or a part of one.
type textLine struct {
	text  []byte // at most maxChunk bytes, without newline; valid until the call returns
	n     int64  // its number, from 1
	later bool   // a part other than the first
	more  bool   // a part other than the last
}

// A lineTaker makes chunks of lines.
type lineTaker interface {
	line(textLine) error
	end() error // called after the last line
}

// lines splits clean text into lines, and long lines into parts.
type textLines struct {
	to    lineTaker
	n     int64 // number of the line that the text starts with or continues
	later bool
}

// take consumes lines from the start of b, and returns their size. Less than maxChunk bytes are left.
func (l *textLines) take(b []byte, end bool) (int, error) {
	at := 0
	for {
		rest := b[at:]
		nl := bytes.IndexByte(rest[:min(len(rest), maxChunk+1)], '\n')
		part, next := rest, len(rest)
		switch {
		case nl >= 0:
			part, next = rest[:nl], nl+1
		case len(rest) > maxChunk:
			var cut int
			cut, next = divide(rest)
			part = rest[:cut]
		case !end:
			return at, nil
		case len(rest) == 0:
			return at, l.to.end()
		}
		more := nl < 0 && len(rest) > maxChunk
		if err := l.to.line(textLine{part, l.n, l.later, more}); err != nil {
			return at, err
		}
		l.later = more
		if !more {
			l.n++
		}
		at += next
	}
}

// divide returns where to cut a text of more than maxChunk bytes, and where the next part starts, which is before the cut.
// Both are between words, unless words are longer than maxCommon bytes.
func divide(b []byte) (cut, next int) {
	cut = betweenWords(b, maxChunk-maxCommon, maxChunk)
	return cut, betweenWords(b, cut-maxCommon, cut-minCommon)
}

// between returns the last position in b, after from and up to to, that is not within a word, or if there is none, not
// within a character.
func betweenWords(b []byte, from, to int) int {
	for i := to; i > from; i-- {
		if blankByte(b[i-1]) {
			return i
		}
	}
	for i := to; i > from; i-- {
		if !inWord[b[i-1]] {
			return i
		}
	}
	for b[to]&0xc0 == 0x80 { // within a character
		to--
	}
	return to
}

// blank reports whether c is a space of clean text.
func blankByte(c byte) bool { return c == ' ' || c == '\t' || c == '\n' }

// isBlank reports whether b contains only spaces.
func isBlank(b []byte) bool {
	for _, c := range b {
		if !blankByte(c) {
			return false
		}
	}
	return true
}

// inWord marks the bytes of words: letters, digits, the underscore, and all non-ASCII bytes.
var inWord = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= 0x80 || c == '_' || letterOrDigit(byte(c))
	}
	return t
}()

func letterOrDigit(c byte) bool { return letter(c) || c >= '0' && c <= '9' }

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
