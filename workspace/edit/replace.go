package edit

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// A change replaces the bytes from start up to end of a file by text.
type change struct {
	start, end int
	text       []byte
}

// rewrite returns content with all changes, which are in order and do not overlap.
func rewrite(content []byte, list []change) []byte {
	var b bytes.Buffer
	at := 0
	for _, c := range list {
		b.Write(content[at:c.start])
		b.Write(c.text)
		at = c.end
	}
	b.Write(content[at:])
	return b.Bytes()
}

// Bounds of what an error counts and names.
const (
	maxCounted = 100    // occurrences
	maxAll     = 10_000 // occurrences that are replaced at once
	maxLines   = 10     // lines named
)

// replace returns the change that replaces the one occurrence of old or, with all, the changes that replace each.
func replace(f *file, old, new string, all bool) ([]change, error) {
	if old == new {
		return nil, fmt.Errorf("old and new are the same: nothing would change")
	}
	var found []int
	for _, form := range forms(f.content) {
		old, new := form(old), form(new)
		if all {
			if n := bytes.Count(f.content, []byte(old)); n > maxAll || len(f.content)+n*(len(new)-len(old)) > MaxFile {
				return nil, fmt.Errorf("old occurs more than %d times in %s, or the file would have more than %d bytes: change it with a command",
					maxAll, f.shown, MaxFile)
			}
			if list := each(f.content, old, new); len(list) > 0 {
				return list, nil
			}
			continue
		}
		if found = occurrences(f.content, old); len(found) == 1 {
			return []change{{start: found[0], end: found[0] + len(old), text: []byte(new)}}, nil
		}
		if len(found) > 1 {
			return nil, ambiguous(f, found)
		}
	}
	return nil, fmt.Errorf("old was not found in %s%s", f.shown, nearestText(f.content, old))
}

// each returns the changes that replace each occurrence of old, from the beginning on.
// Those of one line are one change, as the report shows it.
func each(content []byte, old, new string) (list []change) {
	for at := 0; ; {
		n := bytes.Index(content[at:], []byte(old))
		if n < 0 {
			return list
		}
		start := at + n
		if last := len(list) - 1; last >= 0 && bytes.IndexByte(content[at:start], '\n') < 0 && !bytes.HasSuffix(content[:at], []byte("\n")) {
			list[last].text = append(append(list[last].text, content[at:start]...), new...)
			list[last].end = start + len(old)
		} else {
			list = append(list, change{start: start, end: start + len(old), text: []byte(new)})
		}
		at = start + len(old)
	}
}

// ambiguous returns the error for a text that occurs several times.
func ambiguous(f *file, found []int) error {
	var lines []string
	for i, at := range found {
		if i == maxLines {
			lines = append(lines, "…")
			break
		}
		lines = append(lines, strconv.Itoa(lineOf(f.content, at)))
	}
	count := strconv.Itoa(len(found))
	if len(found) > maxCounted {
		count = "more than " + strconv.Itoa(maxCounted)
	}
	return fmt.Errorf("old occurs %s times in %s, on lines %s: add lines around the one that is meant, so that it occurs once, or set replaceAll",
		count, f.shown, strings.Join(lines, ", "))
}

// forms returns the forms in which the texts of a request are looked for: with the line ends of the file first.
func forms(content []byte) []func(string) string {
	crlf := bytes.Count(content, []byte("\r\n"))
	same := func(s string) string { return s }
	switch {
	case crlf == 0:
		return []func(string) string{same, withLF}
	case crlf == bytes.Count(content, []byte("\n")):
		return []func(string) string{withCRLF}
	}
	return []func(string) string{same, withCRLF, withLF}
}

func withLF(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }

func withCRLF(s string) string { return strings.ReplaceAll(withLF(s), "\n", "\r\n") }

// occurrences returns where s begins in content, overlapping ones as well, at most maxCounted+1.
func occurrences(content []byte, s string) []int {
	var list []int
	for at := 0; len(list) <= maxCounted; {
		n := bytes.Index(content[at:], []byte(s))
		if n < 0 {
			break
		}
		list = append(list, at+n)
		at += n + 1
	}
	return list
}

// lineOf returns the number of the line that the byte at an offset is in.
func lineOf(content []byte, at int) int { return bytes.Count(content[:at], []byte("\n")) + 1 }
