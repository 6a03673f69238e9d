package word

import (
	"unicode"
	"unicode/utf8"
)

// A kind is the role of a rune in words.
type kind uint8

const (
	other  kind = iota // separates words
	letter             // or a digit
	dense              // of a script that is written without spaces
	symbol             // a word of its own
)

// kindAt returns the kind of the rune at i and its size in bytes. At the end the kind is other.
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

// firstEmoji is the first symbol that is used like a word. Below are box-drawing and block characters.
const firstEmoji = 0x2600

func isASCIIWord(b byte) bool {
	return 'a' <= b && b <= 'z' || '0' <= b && b <= '9' || 'A' <= b && b <= 'Z'
}

// isDense reports whether a rune belongs to a script without spaces between words. Hangul has spaces.
func isDense(r rune) bool {
	return r >= 0x0e00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao,
		unicode.Khmer, unicode.Myanmar)
}

// isAccent reports whether a rune is a combining accent. Words are the same without it.
func isAccent(r rune) bool { return r >= 0x0300 && r <= 0x036f }

// A caseOf is the role of a rune in a run of letters and digits.
type caseOf uint8

const (
	none  caseOf = iota // not part of the run
	lower               // or without case
	upper
	digit
	mark // belongs to the letter before it
)

// caseAt returns the role of the rune at i and its size in bytes.
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
	case unicode.Is(unicode.M, r) || r == '\u200c' || r == '\u200d': // joiners occur within words of some scripts
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
