package edit

import (
	"bytes"
	"fmt"
	"strings"

	"corral/internal/text"
)

// A target is the file that a patch is applied to, divided into lines.
type target struct {
	*file
	lines  [][]byte // with their ends
	starts []int    // offset of each line, and of the end
	eol    string   // end of most lines
}

func newTarget(f *file) *target {
	t := &target{file: f, lines: lines(f.content), eol: "\n"}
	at := 0
	for _, line := range t.lines {
		t.starts = append(t.starts, at)
		at += len(line)
	}
	t.starts = append(t.starts, at)
	if crlf := bytes.Count(f.content, []byte("\r\n")); crlf > len(t.lines)/2 {
		t.eol = "\r\n"
	}
	return t
}

// apply returns the changes that the patch makes. All hunks must fit; each is looked for after the one before it.
func (p *patch) apply(f *file) ([]change, error) {
	if p.creates {
		content := newContent(p.hunks[0].lines, "\n")
		if len(p.hunks) > 1 || len(p.hunks[0].old()) > 0 {
			return nil, fmt.Errorf("patch: a patch that creates a file has one hunk with added lines only")
		}
		return create(f, content)
	}
	t := newTarget(f)
	var list []change
	from, shift := 0, 0
	for i := range p.hunks {
		h := &p.hunks[i]
		at, err := t.find(h, from, shift)
		if err != nil {
			return nil, err
		}
		old := h.old()
		if h.line > 0 && len(old) > 0 {
			shift = at - (h.line - 1)
		}
		list = append(list, t.changes(h, at)...)
		from = at + len(old)
	}
	return list, nil
}

// find returns the index of the first line that a hunk keeps or deletes: where its header says, allowing for how far the
// hunks before it were off, or else where its lines are, if that is one place only.
func (t *target) find(h *hunk, from, shift int) (int, error) {
	old := h.old()
	if len(old) == 0 { // its line is the one after which lines are added
		if h.line >= from && h.line <= len(t.lines) && (h.line > 0 || len(t.lines) == 0) {
			return h.line, nil
		}
		return 0, fmt.Errorf("patch: hunk %q adds lines after line %d of %s, which has %d: add lines that are there before or after", h.header, h.line, t.shown, len(t.lines))
	}
	if at := h.line - 1 + shift; h.line > 0 && at >= from && t.fits(old, at) {
		return at, nil
	}
	var found []int
	for at := from; at+len(old) <= len(t.lines) && len(found) <= maxLines; at++ {
		if t.fits(old, at) {
			found = append(found, at)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return 0, t.misfit(h, old, from)
	}
	var at []string
	for _, n := range found {
		at = append(at, fmt.Sprint(n+1))
	}
	return 0, fmt.Errorf("patch: hunk %q fits %s in several places, lines %s, and none is the one in its header: add lines around the change",
		h.header, t.shown, strings.Join(at, ", "))
}

// fits reports whether lines of a hunk are at an index of the file. The ends of lines may differ.
func (t *target) fits(old []hunkLine, at int) bool {
	if at < 0 || at+len(old) > len(t.lines) {
		return false
	}
	for i, l := range old {
		if string(bare(t.lines[at+i])) != l.text {
			return false
		}
	}
	return true
}

func bare(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}

// misfit returns the error for a hunk that fits nowhere, with the hunk.
func (t *target) misfit(h *hunk, old []hunkLine, from int) error {
	var b, shown strings.Builder
	for _, l := range old {
		b.WriteString(l.text + "\n")
	}
	for i, l := range h.lines {
		if i == maxShown {
			fmt.Fprintf(&shown, "… (%d more lines)\n", len(h.lines)-i)
			break
		}
		fmt.Fprintf(&shown, "%c%s\n", l.op, clip(l.text))
	}
	near := nearestText(t.content, b.String())
	if from > 0 {
		near = fmt.Sprintf(" after line %d, where the hunk before it ends%s", from, near)
	}
	return fmt.Errorf("patch: this hunk does not fit %s%s\n%s\n%s", t.shown,
		strings.ReplaceAll(near, "of old", "of the hunk"), h.header, shown.String())
}

// changes returns the changes of a hunk whose lines begin at an index: one for each run of deleted and added lines.
func (t *target) changes(h *hunk, at int) []change {
	var list []change
	for i := 0; i < len(h.lines); {
		if h.lines[i].op == ' ' {
			at++
			i++
			continue
		}
		begin := i
		end := at
		for ; i < len(h.lines) && h.lines[i].op != ' '; i++ {
			if h.lines[i].op == '-' {
				end++
			}
		}
		list = append(list, t.change(h.lines[begin:i], at, end))
		at = end
	}
	return list
}

// change returns the change that replaces the lines from start up to end by the added ones of run.
func (t *target) change(run []hunkLine, start, end int) change {
	content := newContent(run, t.eol)
	c := change{start: t.starts[start], end: t.starts[end], text: []byte(content)}
	unended := len(t.content) > 0 && t.content[len(t.content)-1] != '\n'
	if !unended || end < len(t.lines) || content == "" {
		return c
	}
	marked := false
	for _, l := range run {
		marked = marked || l.bare
	}
	switch {
	case start == end: // added after a last line without an end, which gets one
		c.text = append([]byte(t.eol), bytes.TrimSuffix(c.text, []byte(t.eol))...)
	case !marked: // the file keeps its last line without an end, because the patch does not mention it
		c.text = bytes.TrimSuffix(c.text, []byte(t.eol))
	}
	return c
}

// newContent returns the added lines.
func newContent(list []hunkLine, eol string) string {
	var b strings.Builder
	for _, l := range list {
		if l.op != '+' {
			continue
		}
		b.WriteString(l.text)
		if !l.bare {
			b.WriteString(eol)
		}
	}
	return b.String()
}

// clip returns a line of a client as an error shows it.
func clip(line string) string { return text.Cut(line, maxLine) }
