package artifact

import (
	"bytes"
	"unicode"
	"unicode/utf8"

	safe "corral/internal/text"
)

// appendFolded appends text to dst such that texts that differ only in case become equal (Unicode simple folding).
func appendFolded(dst, text []byte) []byte {
	for i := 0; i < len(text); {
		if b := text[i]; b < utf8.RuneSelf {
			if b >= 'A' && b <= 'Z' {
				b |= 0x20
			}
			dst = append(dst, b)
			i++
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		dst = utf8.AppendRune(dst, foldRune(r))
		i += n
	}
	return dst
}

// fold returns the representative of all runes that differ from r only in case: the lower-case one in ASCII, else the
// smallest.
func foldRune(r rune) rune {
	smallest := r
	for o := unicode.SimpleFold(r); o != r; o = unicode.SimpleFold(o) {
		smallest = min(smallest, o)
	}
	if smallest >= 'A' && smallest <= 'Z' {
		return smallest | 0x20
	}
	return smallest
}

// A finder searches text for terms, ignoring case.
type finder struct {
	terms   [][]byte // folded
	longest int
	tail    []byte // end of the line so far, folded: a term may begin in it
	buf     []byte
	valid   []byte // buffer for invalid UTF-8 made valid
}

// newFinder ignores terms that no line can contain: empty ones and those with a newline.
func newFinder(terms []string) *finder {
	f := &finder{}
	for _, t := range terms {
		if folded := appendFolded(nil, safe.AppendValid(nil, []byte(t))); len(folded) > 0 && !bytes.ContainsRune(folded, '\n') {
			f.terms = append(f.terms, folded)
			f.longest = max(f.longest, len(folded))
		}
	}
	return f
}

// in reports whether p, which may be invalid UTF-8, contains a term.
func (f *finder) in(p []byte) bool {
	f.buf = f.buf[:0]
	if utf8.Valid(p) {
		f.buf = appendFolded(f.buf, p)
	} else {
		f.valid = safe.AppendValid(f.valid[:0], p)
		f.buf = appendFolded(f.buf, f.valid)
	}
	return f.found()
}

func (f *finder) found() bool {
	for _, t := range f.terms {
		if bytes.Contains(f.buf, t) {
			return true
		}
	}
	return false
}

// next reports whether a term ends in the next part of the line.
func (f *finder) next(text []byte) bool {
	f.buf = appendFolded(append(f.buf[:0], f.tail...), text)
	if f.found() {
		return true
	}
	f.tail = append(f.tail[:0], f.buf[max(0, len(f.buf)-f.longest+1):]...)
	return false
}

func (f *finder) newLine() { f.tail = f.tail[:0] }
