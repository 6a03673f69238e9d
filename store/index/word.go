package index

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// FTS5 splits texts into words, folds and stems them (tokenizer porter unicode61). The column parts has what it does not know:
//
//	connectionRefused, HTTPServer   connection refused, http server
//	module200                       module 200
//	接続拒否                          接続 続拒 拒否: pairs, since the script does not separate words
//	🚀                              u1f680: FTS5 skips symbols

// maxWord is the maximum size in bytes of a run of letters that has parts. A longer one is data.
const maxWord = 64

// eachWord calls f with each run of letters and digits in a text, and with each symbol.
func eachWord(text string, f func(word string)) {
	start := -1
	for i := 0; i < len(text); {
		r, n := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(text[i:])
		}
		in := isWord(r)
		switch {
		case in && start < 0:
			start = i
		case !in && start >= 0:
			f(text[start:i])
			start = -1
		}
		if !in && isSymbol(r) {
			f(text[i : i+n])
		}
		i += n
	}
	if start >= 0 {
		f(text[start:])
	}
}

func isWord(r rune) bool {
	if r < utf8.RuneSelf {
		return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z'
	}
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r))
}

// isSymbol reports whether a rune is a symbol that is used like a word. Box-drawing and block characters are below.
func isSymbol(r rune) bool { return r >= 0x2600 && r != utf8.RuneError && unicode.Is(unicode.So, r) }

// isDense reports whether a rune belongs to a script without spaces between words. Hangul has spaces. U+30FC prolongs a vowel of Japanese.
func isDense(r rune) bool {
	return r >= 0x0e00 && (r == 0x30fc || unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao,
		unicode.Khmer, unicode.Myanmar))
}

// A caseOf is the role of a rune in a word.
type caseOf uint8

const (
	lower caseOf = iota // or without case
	upper
	digit
	dense
)

func caseOfRune(r rune) caseOf {
	switch {
	case 'a' <= r && r <= 'z':
		return lower
	case '0' <= r && r <= '9':
		return digit
	case unicode.IsUpper(r):
		return upper
	case isDense(r):
		return dense
	}
	return lower
}

// partsOf returns the parts of a word in lower case, nil if it has none. A word that changes often between letters and digits, such
// as a hash, has none.
func partsOf(word string) []string {
	if r, _ := utf8.DecodeRuneInString(word); isSymbol(r) {
		return []string{fmt.Sprintf("u%x", r)}
	}
	if len(word) > maxWord && !strings.ContainsFunc(word, isDense) {
		return nil
	}
	c := partCutter{word: word}
	turns, last := 0, 0
	var before caseOf
	for i, r := range word {
		now := caseOfRune(r)
		switch {
		case i == 0 || now == before || before == upper && now == lower && last == c.start:
		case before == upper && now == lower: // HTTPServer: S starts the next part
			c.cut(last, upper)
		default:
			c.cut(i, before)
			if turn(before, now) {
				turns++
			}
		}
		before, last = now, i
	}
	if c.start == 0 && before != dense || turns > 1 {
		return nil
	}
	if c.cut(len(word), before); turns == 1 && len(c.parts) == 1 { // 0xdeadbeef, 678Z
		return nil
	}
	return c.parts
}

// turn reports whether two runes are a letter and a digit.
func turn(a, b caseOf) bool { return (a == digit || b == digit) && a != dense && b != dense }

// A partCutter cuts a word into parts.
type partCutter struct {
	word  string
	start int // of the next part
	parts []string
}

// cut ends the part at end. A part of one byte is too short to search for.
func (c *partCutter) cut(end int, of caseOf) {
	switch {
	case of == dense:
		c.parts = append(c.parts, pairs(c.word[c.start:end])...)
	case end-c.start > 1:
		c.parts = append(c.parts, strings.ToLower(c.word[c.start:end]))
	}
	c.start = end
}

// pairs returns the overlapping pairs of runes of a text, or the only rune.
func pairs(text string) []string {
	var all []string
	runes := []rune(text)
	for i := 0; i+1 < len(runes); i++ {
		all = append(all, string(runes[i:i+2]))
	}
	if len(runes) == 1 {
		return []string{text}
	}
	return all
}

// isStop reports whether a word in lower case is so common in English that it does not distinguish texts.
func isStop(w string) bool {
	switch w {
	case "a", "an", "and", "are", "as", "at", "be", "been", "but", "by", "can", "could", "did", "do", "does", "for", "from",
		"had", "has", "have", "how", "i", "if", "in", "into", "is", "it", "its", "me", "my", "no", "not", "of", "on", "or",
		"our", "should", "so", "some", "such", "than", "that", "the", "their", "them", "then", "there", "these", "they",
		"this", "those", "to", "was", "we", "were", "what", "when", "where", "which", "while", "who", "why", "will", "with",
		"would", "you", "your":
		return true
	}
	return false
}
