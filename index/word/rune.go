package word

import (
	"unicode"
	"unicode/utf8"
)

// A kind is what a rune is to words.
type kind uint8

const (
	other  kind = iota // it parts words
	letter             // or a digit
	dense              // of a script that is written without spaces
	symbol             // a word of its own
)

// kindAt returns the kind of the rune at i, other at the end, and how many bytes it has.
func kindAt(text string, i int) (kind, int) {
	if i >= len(text) {
		return other, 0
	}
	if b := text[i]; b < utf8.RuneSelf {
		if isASCIIWord(b) {
			return letter, 1
		}
		return other, 1
	}
	r, n := utf8.DecodeRuneInString(text[i:])
	switch {
	case r == utf8.RuneError:
		return other, n
	case isDense(r):
		return dense, n
	case unicode.IsLetter(r) || unicode.IsNumber(r):
		return letter, n
	case r >= firstEmoji && unicode.Is(unicode.So, r):
		return symbol, n
	}
	return other, n
}

// firstEmoji is where symbols begin that people write as they write words. What is before are frames and blocks.
const firstEmoji = 0x2600

func isASCIIWord(b byte) bool {
	return 'a' <= b && b <= 'z' || '0' <= b && b <= '9' || 'A' <= b && b <= 'Z'
}

// isDense says whether a rune is of a script without spaces between words. Hangul has them.
func isDense(r rune) bool {
	return r >= 0x0e00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao,
		unicode.Khmer, unicode.Myanmar)
}

// isAccent says whether a rune is an accent that follows its letter, which is the same word without.
func isAccent(r rune) bool { return r >= 0x0300 && r <= 0x036f }

// A caseOf is what a rune is within a run of letters and digits.
type caseOf uint8

const (
	none  caseOf = iota // not of the run
	lower               // or without case
	upper
	digit
	mark // belongs to the letter before it
)

// caseAt returns that of the rune at i, and how many bytes it has.
func caseAt(text string, i int) (caseOf, int) {
	b := text[i]
	switch {
	case 'a' <= b && b <= 'z':
		return lower, 1
	case '0' <= b && b <= '9':
		return digit, 1
	case 'A' <= b && b <= 'Z':
		return upper, 1
	case b < utf8.RuneSelf:
		return none, 1
	}
	r, n := utf8.DecodeRuneInString(text[i:])
	switch {
	case r == utf8.RuneError || isDense(r):
		return none, n
	case unicode.Is(unicode.M, r) || r == '\u200c' || r == '\u200d': // joiners are within words of some scripts
		return mark, n
	case unicode.IsNumber(r):
		return digit, n
	case unicode.IsUpper(r):
		return upper, n
	case unicode.IsLetter(r):
		return lower, n
	}
	return none, n
}
