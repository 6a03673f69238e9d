package tool

import (
	"fmt"
	"strings"
	"unicode/utf8"

	safe "corral/internal/text"
)

const (
	// MaxMessage is the maximum number of bytes of an outgoing message. The official TypeScript client closes the
	// connection above 10 MiB.
	MaxMessage = 9 << 20
	// MaxShort is the maximum number of bytes of a member that the short form of a result's text includes.
	MaxShort = 512
)

// CutText cuts s to n bytes, at a character boundary, and appends a mark.
func CutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	head := safe.Head(s, n)
	return fmt.Sprintf("%s… (+%d) [truncated]", head, utf8.RuneCountInString(s[len(head):]))
}

// MaxText is the maximum number of bytes of a result's JSON that are repeated as text.
const MaxText = 64 << 10

// Clean replaces invalid UTF-8 in a string that a job or a client chose.
func Clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// UTF8 returns s with each byte that is not valid UTF-8 replaced by U+FFFD.
func UTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}
