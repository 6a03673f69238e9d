package chunk

import "bytes"

// How much the parts of a long line have in common: each run of minCommon bytes of it is whole in one of them.
const (
	minCommon = 128
	maxCommon = 256
)

// A line is one of clean text, or a part of one.
type line struct {
	text  []byte // of at most MaxText bytes, no newline; valid until the call ends
	n     int64  // its number, from 1
	later bool   // a part, and not the first
	more  bool   // a part, and not the last
}

// A lineTaker makes chunks of lines.
type lineTaker interface {
	line(line) error
	end() error // after the last line
}

// lines divides clean text into lines, and long lines into parts.
type lines struct {
	to    lineTaker
	n     int64 // the number of the line that text begins with or goes on with
	later bool
}

// take takes lines from the front of b and returns how many bytes they were. Less than MaxText are left.
func (l *lines) take(b []byte, end bool) (int, error) {
	at := 0
	for {
		rest := b[at:]
		nl := bytes.IndexByte(rest[:min(len(rest), MaxText+1)], '\n')
		part, next := rest, len(rest)
		switch {
		case nl >= 0:
			part, next = rest[:nl], nl+1
		case len(rest) > MaxText:
			var cut int
			cut, next = divide(rest)
			part = rest[:cut]
		case !end:
			return at, nil
		case len(rest) == 0:
			return at, l.to.end()
		}
		more := nl < 0 && len(rest) > MaxText
		if err := l.to.line(line{part, l.n, l.later, more}); err != nil {
			return at, err
		}
		l.later = more
		if !more {
			l.n++
		}
		at += next
	}
}

// divide says where a text of more than MaxText bytes is cut, and where the next part begins: before that. Both are
// between words, if there are words of less than maxCommon bytes there.
func divide(b []byte) (cut, next int) {
	cut = between(b, MaxText-maxCommon, MaxText)
	return cut, between(b, cut-maxCommon, cut-minCommon)
}

// between returns the last place in b, after from and not after to, where no word is cut; else where no character is.
func between(b []byte, from, to int) int {
	for i := to; i > from; i-- {
		if blank(b[i-1]) {
			return i
		}
	}
	for i := to; i > from; i-- {
		if !inWord[b[i-1]] {
			return i
		}
	}
	for b[to]&0xc0 == 0x80 { // inside of a character
		to--
	}
	return to
}

// blank says whether c is a space, as they are in clean text.
func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' }

// isBlank says whether there is nothing but spaces in b.
func isBlank(b []byte) bool {
	for _, c := range b {
		if !blank(c) {
			return false
		}
	}
	return true
}

// inWord are the bytes of words: letters and digits, the underscore, and all that is not ASCII.
var inWord = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= 0x80 || c == '_' || letterOrDigit(byte(c))
	}
	return t
}()

func letterOrDigit(c byte) bool { return letter(c) || c >= '0' && c <= '9' }

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
