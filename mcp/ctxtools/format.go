package ctxtools

import (
	"fmt"
	"strings"
	"time"

	"corral/mcp/tool"
)

// stamp formats a time for replies: RFC 3339 in UTC, to the second.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// singleLine returns s on one line. It is not escaped: an agent sends it back as a title or label.
func singleLine(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, tool.Clean(s)))
}

// Counted returns n things, in the plural if n is not 1.
func Counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// kilobytes returns n bytes in KiB, with one decimal.
func kilobytes(n int64) string { return fmt.Sprintf("%.1fKB", float64(n)/1024) }
