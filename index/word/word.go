// Package word divides text into words as an index has them, so that what is indexed, what is asked for and what is shown
// as found are the same words.
//
// A word is a run of letters and digits, in lower case, without accents; everything else parts words, the underscore too.
// What has words within it gives them as parts, after the whole:
//
//	connectionRefused, HTTPServer   connectionrefused, connection, refused; httpserver, http, server
//	module200                       module200, module, 200
//	接続拒否                          接続, 続拒, 拒否: pairs, since nothing parts words there
//	🚀                              a word of its own
//
// Stem is Porter's. It knows English; other words it leaves nearly as they are.
package word

import (
	"unicode"
	"unicode/utf8"
)

// Max is how many bytes a word has at most; the rest of a longer one is not looked at.
const Max = 64

// A Scanner goes through the words of a text. Its zero value has none.
type Scanner struct {
	text  string
	next  int // where to go on in text
	parts []span
	buf   []byte

	// Start and End are where in the text the word is. Part says that it is within the whole word before it.
	Start, End int
	Part       bool
}

type span struct{ start, end int }

// Reset has s begin with a text, which need not be valid UTF-8.
func (s *Scanner) Reset(text string) {
	s.text, s.next, s.parts = text, 0, s.parts[:0]
}

// Next goes to the next word. At the end it returns false.
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

// Word is the word, folded. It is good until the next call of Next or Reset.
func (s *Scanner) Word() []byte { return s.buf }

// run takes the run of words of kind k that begins at s.next.
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

// pairs takes a run of a script that does not part words: each rune with the next.
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

// letters goes to the end of a run of letters and digits, and finds its parts: in camel case, and where one run of digits
// ends one of letters. What changes often between them is no name but a number, in hexadecimal for example.
func (s *Scanner) letters() {
	start := s.next
	part := start       // where the part begins that is not yet noted
	var before caseOf   // of the last rune
	var last int        // where that is
	var turns, turn int // how often letters and digits change, and where they did last
	for s.next < len(s.text) {
		c, n := caseAt(s.text, s.next)
		if c == none {
			break
		}
		switch {
		case c == mark:
			s.next += n
			continue
		case before == upper && c == lower && last > part: // HTTPServer: S begins the next
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

// part notes a part, unless it is too short to be looked for.
func (s *Scanner) part(start, end int) {
	if end-start > 1 && len(s.parts) < Max/2 {
		s.parts = append(s.parts, span{start, end})
	}
}

// fold makes the word that is between start and end of the text.
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

// foldRune appends what a rune is without its case and accents, if there is room.
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
