package agent

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"corral/mcp/run"
)

// withFooter returns a text and its footer, on a line of its own.
func withFooter(s string, parts []string) string { return run.WithFooter(s, parts) }

// footer returns the last line of a reply, "" without parts.
func footer(parts []string) string { return run.Footer(parts) }

// line returns s with a newline at its end, unless it is empty.
func line(s string) string {
	if s == "" || strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}

// duration returns d as "5 ms", "2.1 s" or "3 min".
func duration(d time.Duration) string { return run.Duration(d) }

// seconds returns d as seconds: "60 s".
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s"
}

// kilobytes returns a number of bytes for people.
func kilobytes(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d bytes", n)
	case n < 1_000_000:
		return fmt.Sprintf("%.1f KB", float64(n)/1000)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1_000_000)
}
