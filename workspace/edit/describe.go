package edit

import (
	"bytes"
	"fmt"
	"strings"

	"corral/internal/text"
)

// Bounds of the difference that is shown.
const (
	aroundLines = 2  // of the file, before and after a change
	maxDiff     = 40 // lines of all changes
	maxRun      = 12 // deleted or added lines of one change
)

// describe returns the difference that changes made to old, in the form of a unified diff. It is cut to a few lines.
func describe(shown string, created bool, old []byte, list []change) string {
	if created {
		n := len(list[0].text)
		return fmt.Sprintf("created %s: %s, %d bytes\n", shown, plural(len(lines(list[0].text)), "line"), n)
	}
	var body strings.Builder
	added, deleted, shownLines, shift, hidden := 0, 0, 0, 0, 0
	for _, c := range list {
		d := diffOf(old, c)
		added, deleted = added+len(d.added), deleted+len(d.deleted)
		if shownLines >= maxDiff {
			hidden++
		} else {
			shownLines += d.write(&body, shift)
		}
		shift += len(d.added) - len(d.deleted)
	}
	if hidden > 0 {
		fmt.Fprintf(&body, "… (%s more)\n", plural(hidden, "change"))
	}
	return fmt.Sprintf("edited %s: +%d -%d lines\n%s", shown, added, deleted, body.String())
}

func plural(n int, word string) string {
	if n != 1 {
		word += "s"
	}
	return fmt.Sprintf("%d %s", n, word)
}

// A diff is one change in whole lines.
type diff struct {
	line                          int // number of the first line of before, 1-based
	before, deleted, added, after [][]byte
}

// diffOf extends a change to whole lines, and leaves out lines that are the same before and after it.
func diffOf(old []byte, c change) diff {
	start := bytes.LastIndexByte(old[:c.start], '\n') + 1
	end := len(old)
	if c.end == start && c.start == c.end && bytes.HasSuffix(c.text, []byte("\n")) {
		end = c.end // whole lines are added between two lines
	} else if c.end > start && old[c.end-1] == '\n' && (len(c.text) == 0 && c.start == start || bytes.HasSuffix(c.text, []byte("\n"))) {
		end = c.end
	} else if n := bytes.IndexByte(old[c.end:], '\n'); n >= 0 {
		end = c.end + n + 1
	}
	was := lines(old[start:end])
	is := lines(bytes.Join([][]byte{old[start:c.start], c.text, old[c.end:end]}, nil))
	line := bytes.Count(old[:start], []byte("\n")) + 1
	for len(was) > 0 && len(is) > 0 && bytes.Equal(was[0], is[0]) {
		start += len(was[0])
		was, is = was[1:], is[1:]
		line++
	}
	for len(was) > 0 && len(is) > 0 && bytes.Equal(was[len(was)-1], is[len(is)-1]) {
		end -= len(was[len(was)-1])
		was, is = was[:len(was)-1], is[:len(is)-1]
	}
	d := diff{line: line, deleted: was, added: is}
	for i := 0; i < aroundLines && start > 0; i++ {
		begin := bytes.LastIndexByte(old[:start-1], '\n') + 1
		d.before = append([][]byte{old[begin:start]}, d.before...)
		start = begin
		d.line--
	}
	for i := 0; i < aroundLines && end < len(old); i++ {
		stop := len(old)
		if n := bytes.IndexByte(old[end:], '\n'); n >= 0 {
			stop = end + n + 1
		}
		d.after = append(d.after, old[end:stop])
		end = stop
	}
	return d
}

// write writes the difference, and returns the number of lines written.
func (d *diff) write(b *strings.Builder, shift int) int {
	around := len(d.before) + len(d.after)
	fmt.Fprintf(b, "@@ -%d,%d +%d,%d @@\n", d.line, around+len(d.deleted), d.line+shift, around+len(d.added))
	n := 1
	for _, part := range []struct {
		mark  string
		lines [][]byte
	}{{" ", d.before}, {"-", d.deleted}, {"+", d.added}, {" ", d.after}} {
		for i, line := range part.lines {
			if i == maxRun {
				fmt.Fprintf(b, "%s… (%d more lines)\n", part.mark, len(part.lines)-i)
				break
			}
			b.WriteString(part.mark + text.Cut(string(bytes.TrimRight(line, "\r\n")), maxLine) + "\n")
			n++
		}
	}
	return n
}
