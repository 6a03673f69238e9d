package rpc

import (
	"bytes"
	"iter"
	"unicode/utf8"

	"corral/internal/strictjson"
	"corral/internal/text"
)

const (
	maxWhole  = 64 << 10 // bytes of output in a message that is written at once
	pieceSize = 16 << 10 // bytes of a text that are encoded at a time
)

// A named is a text to be inserted into a message, as the value of its only member of that name.
type named struct {
	name string
	text []byte // not necessarily UTF-8, see validText
	more string // appended to text
}

// inPieces returns the encoded message frame, in which the values of texts are "", with these inserted, in their order. In
// JSON a byte can take six, so an encoded message is never in memory as a whole: only the piece that is being written.
func inPieces(frame []byte, texts ...named) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		rest := frame
		for _, t := range texts {
			// It cannot occur in a string before: there its quotation marks would be escaped.
			key := []byte(`"` + t.name + `":""`)
			at := bytes.Index(rest, key) + len(key) - 1
			if !yield(rest[:at]) {
				return
			}
			rest = rest[at:]
			for text := t.text; len(text) > 0; {
				n := boundary(text, pieceSize)
				if !yield(inner(validText(text[:n]))) {
					return
				}
				text = text[n:]
			}
			if t.more != "" && !yield(inner(t.more)) {
				return
			}
		}
		yield(rest)
	}
}

// inner returns the encoded string without its quotation marks.
func inner(s string) []byte {
	text := strictjson.Encode(s)
	return text[1 : len(text)-1]
}

// boundary returns the largest number of bytes, at most limit, after which b can be divided so that validText of both parts
// gives the same as of the whole.
func boundary(b []byte, limit int) int {
	if len(b) <= limit {
		return len(b)
	}
	for n := limit; n > limit-utf8.UTFMax; n-- {
		if utf8.RuneStart(b[n]) {
			return n
		}
	}
	return limit // a rune has fewer continuation bytes: each is invalid by itself
}

// validText replaces each invalid sequence of b with U+FFFD. A truncated rune yields one U+FFFD for all of its bytes
// (Unicode, section 3.9, substitution of maximal subparts).
func validText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return string(text.AppendValid(make([]byte, 0, len(b)+len(b)/8), b))
}
