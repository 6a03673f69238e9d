package index

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	maxTitle   = 200 // bytes of a title
	titleChars = 80  // characters of a line used as a title
	minWord    = 3   // consecutive letters in a line used as a title
)

// titleOf returns the first line of a text that has a word, shortened to about titleChars, or if there is none, its line
// numbers.
func titleOf(text string, first, last int64) string {
	for l := range strings.SplitSeq(text, "\n") {
		if !hasWord(l) {
			continue
		}
		if t := shortenTitle(l, titleChars); t != "" { // empty if all of it is non-ASCII space
			return t
		}
	}
	if first == last {
		return fmt.Sprintf("line %d", first)
	}
	return fmt.Sprintf("lines %d-%d", first, last)
}

// hasWord reports whether s has minWord consecutive letters.
func hasWord(s string) bool {
	run := 0
	for i := range len(s) {
		if !letter(s[i]) && s[i] < 0x80 {
			run = 0
			continue
		}
		if run++; run == minWord {
			return true
		}
	}
	return false
}

// shorten converts s to one line of at most chars characters and maxTitle bytes. Runs of tabs and spaces become one
// space.
func shortenTitle(s string, chars int) string {
	s = strings.TrimLeft(s, " \t")
	var b strings.Builder
	for w := range strings.FieldsSeq(s[:min(len(s), 4*maxTitle)]) {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(w)
		if b.Len() > maxTitle {
			break
		}
	}
	t := strings.ToValidUTF8(b.String(), "")
	cut := len(t)
	for i := range t {
		if chars == 0 || i > maxTitle-utf8.UTFMax-len("…") {
			cut = i
			break
		}
		chars--
	}
	if cut == len(t) {
		return t
	}
	if sp := strings.LastIndexByte(t[:cut], ' '); sp > cut*2/3 {
		cut = sp
	}
	return t[:cut] + "…"
}
