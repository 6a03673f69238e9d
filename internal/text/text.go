// Package text makes what jobs and clients wrote fit for a terminal, a log or an error. Such text can hold control
// sequences that rewrite a screen, ends of lines that forge a line of ours, characters that turn the direction of what
// follows (CVE-2021-42574), bytes that are no text, and any number of them.
package text

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// What is shown as it is: letters, marks, numbers, punctuation, symbols and the ASCII space, as Go's strconv.IsPrint has it. So
// joiners and spaces without a width are escaped, which some scripts have within words: they hide as well as they join.

// Escape is s on one line, with Go's escapes for what is not printed: \n, \x1b, \u202e, and \xff for a byte that is no UTF-8.
func Escape(s string) string { return escape(s, "") }

// Lines is Escape for text that may have more than one line, and tabs.
func Lines(s string) string { return escape(s, "\n\t") }

func escape(s, but string) string {
	shown := func(r rune, n int) bool {
		return (strconv.IsPrint(r) || r < utf8.RuneSelf && strings.IndexByte(but, byte(r)) >= 0) && (r != utf8.RuneError || n > 1)
	}
	at := 0
	for at < len(s) {
		r, n := utf8.DecodeRuneInString(s[at:])
		if !shown(r, n) {
			break
		}
		at += n
	}
	if at == len(s) {
		return s
	}
	b := append(make([]byte, 0, len(s)+16), s[:at]...)
	for s = s[at:]; len(s) > 0; {
		r, n := utf8.DecodeRuneInString(s)
		if shown(r, n) {
			b = append(b, s[:n]...)
		} else { // without the quotes
			from := len(b)
			b = strconv.AppendQuote(b, s[:n])
			b = append(b[:from], b[from+1:len(b)-1]...)
		}
		s = s[n:]
	}
	return string(b)
}

// Quote is a name: as it is if nothing in it needs an escape, else between quotes, as Go has it.
func Quote(s string) string {
	if q := strconv.Quote(s); q != `"`+s+`"` {
		return q
	}
	return s
}

// Line is somebody else's text within a message of ours: on one line, with one space for all white space between two words, escaped,
// and cut, of at most so many bytes before its escapes.
func Line(s string, most int) string {
	begin := Head(s, 4*most)
	line := strings.Join(strings.Fields(begin), " ")
	if len(begin) < len(s) && len(line) <= most {
		return Escape(line) + "…"
	}
	return Escape(Cut(line, most))
}

const hexDigits = "0123456789abcdef"

// JSON is a JSON text in which each character that a terminal would not show as itself is escaped: DEL, C1 controls, what
// turns the direction of text, separators of lines, what has no width. It means the same as before. White space between
// values stays.
func JSON(b []byte) []byte {
	at := unshown(b)
	if at == len(b) {
		return b
	}
	out := append(make([]byte, 0, len(b)+16), b[:at]...)
	for b = b[at:]; len(b) > 0; {
		r, n := utf8.DecodeRune(b)
		switch {
		case r == utf8.RuneError && n == 1:
			out = append(out, `\ufffd`...)
		case r < ' ' || strconv.IsPrint(r): // controls of C0 are between values, or it is no JSON
			out = append(out, b[:n]...)
		case r > 0xffff:
			out = appendUnit(out, 0xd800+(r-0x10000)>>10)
			out = appendUnit(out, 0xdc00+(r-0x10000)&0x3ff)
		default:
			out = appendUnit(out, r)
		}
		b = b[n:]
	}
	return out
}

// WriteJSON writes a value as JSON, a line or, with an indent, some.
func WriteJSON(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(v)
	if err == nil {
		_, err = w.Write(JSON(b.Bytes()))
	}
	return err
}

// unshown is where JSON has the first to escape, or len(b).
func unshown(b []byte) int {
	for at := 0; at < len(b); {
		r, n := utf8.DecodeRune(b[at:])
		if r >= ' ' && !strconv.IsPrint(r) || r == utf8.RuneError && n == 1 {
			return at
		}
		at += n
	}
	return len(b)
}

// appendUnit appends one UTF-16 code unit, as JSON has them.
func appendUnit(b []byte, u rune) []byte {
	return append(b, '\\', 'u', hexDigits[u>>12&15], hexDigits[u>>8&15], hexDigits[u>>4&15], hexDigits[u&15])
}

// Cut is s, or what it begins with: at most so many bytes and no half of a character, with an ellipsis behind them.
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return Head(s, most) + "…"
}

// Head is Cut without the ellipsis.
func Head(s string, most int) string {
	if len(s) <= most {
		return s
	}
	end := max(most, 0)
	for back := 1; back < utf8.UTFMax && back <= end; back++ {
		if utf8.RuneStart(s[end-back]) {
			if !utf8.FullRuneInString(s[end-back : end]) {
				end -= back
			}
			break
		}
	}
	return s[:end]
}
