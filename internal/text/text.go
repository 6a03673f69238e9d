// Package text makes text from jobs and clients safe to show on a terminal, in a log or in an error. Such text can hold control
// sequences that rewrite the screen, newlines that forge a line of the program, characters that change the direction of what
// follows (CVE-2021-42574) and invalid UTF-8, and can have any length.
package text

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Letters, marks, numbers, punctuation, symbols and the ASCII space are shown unchanged: what strconv.IsPrint accepts. Joiners and
// zero-width spaces are escaped although some scripts use them within words, because they can also hide text.

// Escape returns s on one line, with Go's escapes for what is not printable: \n, \x1b, \u202e, and \xff for an invalid byte.
func Escape(s string) string { return escape(s, "") }

// Lines is like Escape, but leaves newlines and tabs unchanged.
func Lines(s string) string { return escape(s, "\n\t") }

// escape escapes s, except for the ASCII characters in except.
func escape(s, except string) string {
	shown := func(r rune, n int) bool {
		return (strconv.IsPrint(r) || r < utf8.RuneSelf && strings.IndexByte(except, byte(r)) >= 0) && (r != utf8.RuneError || n > 1)
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

// Quote returns a name unchanged if it needs no escapes, otherwise as strconv.Quote does.
func Quote(s string) string {
	if q := strconv.Quote(s); q != `"`+s+`"` {
		return q
	}
	return s
}

// Line returns s for use within a message: on one line, with one space between words, cut to limit bytes and then escaped.
func Line(s string, limit int) string {
	begin := Head(s, 4*limit)
	line := strings.Join(strings.Fields(begin), " ")
	if len(begin) < len(s) && len(line) <= limit {
		return Escape(line) + "…"
	}
	return Escape(Cut(line, limit))
}

const hexDigits = "0123456789abcdef"

// JSON escapes the characters of a JSON text that a terminal would not show as themselves: DEL, C1 controls, and characters that
// change the direction of text, separate lines or have no width. The result has the same meaning. White space between values is
// unchanged.
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
			out = AppendUnit(out, 0xd800+(r-0x10000)>>10)
			out = AppendUnit(out, 0xdc00+(r-0x10000)&0x3ff)
		default:
			out = AppendUnit(out, r)
		}
		b = b[n:]
	}
	return out
}

// unshown returns the index of the first character that JSON escapes, or len(b).
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

// AppendUnit appends a UTF-16 code unit as a JSON escape: \u and four hexadecimal digits.
func AppendUnit(b []byte, u rune) []byte {
	return append(b, '\\', 'u', hexDigits[u>>12&15], hexDigits[u>>8&15], hexDigits[u>>4&15], hexDigits[u&15])
}

// Cut returns s if it has at most limit bytes, otherwise the whole characters that fit and an ellipsis.
func Cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return Head(s, limit) + "…"
}

// Head is Cut without the ellipsis.
func Head(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return Complete(s[:max(limit, 0)])
}

// Tail returns the end of s that has at most limit bytes, in whole characters.
func Tail(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return Rest(s[len(s)-max(limit, 0):])
}

// Complete returns s without the beginning of a character at its end, for a text that is cut there or still being written.
func Complete[S ~string | ~[]byte](s S) S {
	for back := 1; back < utf8.UTFMax && back <= len(s); back++ {
		if at := len(s) - back; utf8.RuneStart(s[at]) {
			if !utf8.FullRuneInString(string(s[at:])) {
				return s[:at]
			}
			break
		}
	}
	return s
}

// Rest returns s without the end of a character in front, for a text that is cut there.
func Rest[S ~string | ~[]byte](s S) S {
	for n := range min(len(s), utf8.UTFMax) {
		if utf8.RuneStart(s[n]) {
			return s[n:]
		}
	}
	return s // no text
}

// AppendValid appends p to dst as valid UTF-8: invalid sequences become U+FFFD, one for each maximal part of a character (Unicode 15, 3.9,
// "U+FFFD Substitution of Maximal Subparts"; browsers and JavaScript do the same).
func AppendValid(dst, p []byte) []byte {
	for len(p) > 0 {
		r, n := utf8.DecodeRune(p)
		for r == utf8.RuneError && n < min(len(p), utf8.UTFMax) && !utf8.FullRune(p[:n]) && !utf8.FullRune(p[:n+1]) {
			n++
		}
		dst = utf8.AppendRune(dst, r)
		p = p[n:]
	}
	return dst
}
