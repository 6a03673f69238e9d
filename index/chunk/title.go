package chunk

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	maxTitle   = 200 // bytes of any title
	titleChars = 80  // characters of a line that is one
	minWord    = 3   // letters, for a line to mean something
)

// titleOf is the first line of a text that has a word, cut to about titleChars; else its line numbers.
func titleOf(text string, first, last int64) string {
	for l := range strings.SplitSeq(text, "\n") {
		if !hasWord(l) {
			continue
		}
		if t := shorten(l, titleChars); t != "" { // of more than spaces that are not ASCII
			return t
		}
	}
	if first == last {
		return fmt.Sprintf("line %d", first)
	}
	return fmt.Sprintf("lines %d-%d", first, last)
}

// hasWord says whether so many letters follow each other in s.
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

// shorten makes one line of s, of at most so many characters, and maxTitle bytes. Tabs and more than one space are one.
func shorten(s string, chars int) string {
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
