// Package text makes what jobs and clients wrote fit for a terminal, a log or an error. Such text can hold control
// sequences that rewrite a screen, ends of lines that forge a line of ours, characters that turn the direction of what
// follows (CVE-2021-42574), bytes that are no text, and any number of them.
package text

import (
	"strconv"
	"unicode/utf8"
)

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
	end := max(most, 0)
	for back := 1; back < utf8.UTFMax && back <= end; back++ {
		if utf8.RuneStart(s[end-back]) {
			if !utf8.FullRuneInString(s[end-back : end]) {
				end -= back
			}
			break
		}
	}
	return s[:end] + "…"
}
