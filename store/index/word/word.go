// Package word splits text into words, in the same way for indexing, queries, and the marks in results.
//
// A word is a run of letters and digits, in lower case and without accents. All other characters, including the
// underscore, separate words. The parts of a compound word follow the whole:
//
//	connectionRefused, HTTPServer   connectionrefused, connection, refused; httpserver, http, server
//	module200                       module200, module, 200
//	接続拒否                          接続, 続拒, 拒否: pairs, since the script does not separate words
//	🚀                              a word of its own
//
// Stem is Porter's algorithm. It is made for English, and leaves words of other languages nearly unchanged.
package word

import (
	"unicode"
	"unicode/utf8"
)

// Max is the maximum size of a word in bytes; the rest of a longer word is ignored.
const Max = 64

// A Scanner iterates over the words of a text. The zero value has none.
type Scanner struct {
	text  string
	next  int // position in text
	parts []span
	buf   []byte

	// Start and End are the position of the word in the text. Part reports that it is a part of the whole word before it.
	Start, End int
	Part       bool
}

type span struct{ start, end int }

// Reset starts s on a text, which need not be valid UTF-8.
func (s *Scanner) Reset(text string) {
	s.text, s.next, s.parts = text, 0, s.parts[:0]
}

// Next advances to the next word. It returns false at the end.
func (s *Scanner) Next() bool {
	if len(s.parts) > 0 {
		p := s.parts[0]
		s.parts = s.parts[1:]
		s.fold(p.start, p.end)
		s.Part = true
		return true
	}
	for s.next < len(s.text) {
		k, n := kindAt(s.text, s.next)
		if k == other {
			s.next += n
			continue
		}
		s.run(k)
		if len(s.buf) > 0 {
			return true
		}
	}
	return false
}

// Word returns the folded word. It is valid until the next call of Next or Reset.
func (s *Scanner) Word() []byte { return s.buf }

// run reads the run of words of kind k that starts at s.next.
func (s *Scanner) run(k kind) {
	start := s.next
	s.Part, s.parts = false, s.parts[:0]
	switch k {
	case symbol:
		_, n := utf8.DecodeRuneInString(s.text[start:])
		s.next += n
	case dense:
		s.pairs()
		return
	default:
		s.letters()
	}
	s.fold(start, s.next)
}

// pairs reads the next pair of runes of a dense script. Pairs overlap.
func (s *Scanner) pairs() {
	start := s.next
	_, n := utf8.DecodeRuneInString(s.text[start:])
	s.next += n
	if k, m := kindAt(s.text, s.next); k == dense {
		s.fold(start, s.next+m)
		if k, _ := kindAt(s.text, s.next+m); k != dense {
			s.next += m
		}
		return
	}
	s.fold(start, s.next)
}

// letters reads a run of letters and digits, and finds its parts: in camel case, and where it changes once from letters
// to digits. A run that changes often between the two is a number, for example in hexadecimal, and has no parts.
func (s *Scanner) letters() {
	start := s.next
	part := start       // start of the current part
	var before caseOf   // of the previous rune
	var last int        // position of the previous rune
	var turns, turn int // number of changes between letters and digits, and position of the last one
	for s.next < len(s.text) {
		c, n := caseAt(s.text, s.next)
		if c == none {
			break
		}
		switch {
		case c == mark:
			s.next += n
			continue
		case before == upper && c == lower && last > part: // HTTPServer: S starts the next part
			s.part(part, last)
			part = last
		case before == lower && c == upper:
			s.part(part, s.next)
			part = s.next
		case before != none && (before == digit) != (c == digit):
			turns, turn = turns+1, s.next
		}
		before, last = c, s.next
		s.next += n
	}
	switch {
	case turns > 2:
		s.parts = s.parts[:0]
	case part > start:
		s.part(part, s.next)
	case turns == 1 && before == digit && turn-start > 1 && s.next-turn > 1:
		s.part(start, turn)
		s.part(turn, s.next)
	}
}

// part adds a part, unless it is too short to search for.
func (s *Scanner) part(start, end int) {
	if end-start > 1 && len(s.parts) < Max/2 {
		s.parts = append(s.parts, span{start, end})
	}
}

// fold sets the current word to the folded text from start to end.
func (s *Scanner) fold(start, end int) {
	s.Start, s.End, s.buf = start, end, s.buf[:0]
	for i := start; i < end; {
		if b := s.text[i]; b < utf8.RuneSelf {
			if len(s.buf) == Max {
				return
			}
			if 'A' <= b && b <= 'Z' {
				b += 'a' - 'A'
			}
			s.buf = append(s.buf, b)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s.text[i:end])
		i += n
		if !s.foldRune(r) {
			return
		}
	}
}

// foldRune appends a rune without case and accents. It returns false if it does not fit.
func (s *Scanner) foldRune(r rune) bool {
	switch {
	case isAccent(r):
		return true
	case r >= foldFirst && r <= foldLast:
		if plain := folded[r-foldFirst]; plain != "" {
			if len(s.buf)+len(plain) > Max {
				return false
			}
			s.buf = append(s.buf, plain...)
			return true
		}
	}
	r = unicode.ToLower(r)
	if len(s.buf)+utf8.RuneLen(r) > Max {
		return false
	}
	s.buf = utf8.AppendRune(s.buf, r)
	return true
}
