package sandboxtest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// longText is the size in bytes of the longest hostile texts.
const longText = 1 << 20

// HostileText returns hostile texts by description: each control character, each character that changes the direction of text, has no
// width or ends a line, invalid UTF-8, and lines of 1 MiB.
func HostileText() map[string]string {
	list := map[string]string{
		"no UTF-8": "a\xffb\xe2\x82", "halves": "\xed\xa0\x80\xed\xb0\x80", "tags": "a\U000e0001\U000e0041b",
		"a screen": "\x1b[2J\x1b]0;title\x07", "a C1 sequence": "\u009b2J", "a name": "\u202egnp.exe",
		"a line of ours": "x\ncorral: sensitive path changed: none\r\nhint: sudo rm -r /", "quotes": "a\"b'c`d\\",
		"long":             strings.Repeat("x", longText),
		"long and escaped": strings.Repeat("\u202e", longText/3), "long and white": strings.Repeat(" ", longText),
	}
	for r := rune(0); r < 0x10000; r++ {
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
			list[fmt.Sprintf("%U", r)] = "a" + string(r) + "b"
		}
	}
	return list
}

// A Place is a part of a program that shows text from jobs or clients.
type Place struct {
	Name string
	// Shows returns what the program shows for s.
	Shows func(s string) string
	// Lines is the number of lines shown for every s.
	Lines int
	// Most is the maximum number of bytes shown; 0 means that the caller bounds s.
	Most int
}

// CheckShown fails the test if a place shows a hostile text with characters that are not printable, with more lines or with more bytes than
// it may have.
func CheckShown(t *testing.T, places []Place) {
	t.Helper()
	for _, p := range places {
		t.Run(p.Name, func(t *testing.T) {
			for name, s := range HostileText() {
				got := p.Shows(s)
				if strings.ContainsFunc(got, func(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }) || !utf8.ValidString(got) {
					t.Errorf("%s: %.200q", name, got)
				}
				if n := strings.Count(strings.TrimSuffix(got, "\n"), "\n") + 1; n != p.Lines {
					t.Errorf("%s: %d lines, want %d: %.200q", name, n, p.Lines, got)
				}
				if p.Most > 0 && len(got) > p.Most {
					t.Errorf("%s: %d bytes, want at most %d", name, len(got), p.Most)
				}
			}
		})
	}
}
