package execute

import (
	"fmt"
	"strings"

	safe "corral/internal/text"
	"corral/mcp/tool"
	"corral/store/artifact"
)

// maxShort is the maximum number of bytes of both streams together that a reply in mode minimal shows.
const maxShort = 4 << 10

// maxLeftOut is an upper bound of the bytes of the mark in place of what is left out.
const maxLeftOut = 80

// short returns both streams, captured with View.Ends of maxShort/2: whole if they have at most maxShort bytes together, else the
// first and the last lines of the longer ones, with counts of what is left out.
func short(stdout, stderr *artifact.StreamCapture) (out, err string) {
	o, e := stdout.Size(), stderr.Size()
	if o+e <= maxShort {
		return ends(stdout, maxShort), ends(stderr, maxShort)
	}
	// A stream that needs less than half leaves the rest to the other.
	room := func(other int64) int { return int(max(maxShort/2, maxShort-other)) }
	return ends(stdout, room(e)), ends(stderr, room(o))
}

// ends returns a stream of at most room bytes as it is, and else its first and last lines in about room bytes.
func ends(c *artifact.StreamCapture, room int) string {
	if c.Between == 0 && len(c.Head)+len(c.Tail) <= room {
		return tool.UTF8(c.Head + c.Tail)
	}
	head, tail := c.Head, c.Tail
	if c.Between == 0 {
		head, tail = head+tail, head+tail
	}
	half := (room - maxLeftOut) / 2
	head, tail = firstLines(head, half), lastLines(tail, half)
	lines := c.Lines - int64(strings.Count(head, "\n")+strings.Count(tail, "\n"))
	if tail != "" && !strings.HasSuffix(tail, "\n") {
		lines--
	}
	mark := fmt.Sprintf("… %d lines, %d bytes left out …\n", max(lines, 1), c.Size()-int64(len(head)+len(tail)))
	if head != "" && !strings.HasSuffix(head, "\n") {
		mark = "\n" + mark
	}
	return tool.UTF8(head) + mark + tool.UTF8(tail)
}

// firstLines returns the first lines of s with at most n bytes or, if the first line is longer, its beginning.
func firstLines(s string, n int) string {
	s = safe.Head(s, n)
	if at := strings.LastIndexByte(s, '\n'); at >= 0 {
		return s[:at+1]
	}
	return s
}

// lastLines returns the last lines of s with at most n bytes or, if the last line is longer, its end.
func lastLines(s string, n int) string {
	s = safe.Tail(s, n)
	if at := strings.IndexByte(s, '\n'); at >= 0 && at < len(s)-1 {
		return s[at+1:]
	}
	return s
}
