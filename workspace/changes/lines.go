package changes

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"github.com/aymanbagabas/go-udiff/lcs"
)

// contextLines is the number of context lines around a change.
const contextLines = 3

// An edit replaces lines [a0, a1) of the old text by lines [b0, b1) of the new one.
type edit struct{ a0, a1, b0, b1 int }

// lines splits a text after each newline.
func lines(text []byte) []string {
	var all []string
	for l := range bytes.Lines(text) {
		all = append(all, string(l))
	}
	return all
}

// compare returns the edits that turn a into b, in order and without overlap. The library searches for a short edit
// script up to its own bound, and replaces the remainder as a whole; therefore long texts are first divided at lines
// that occur once in each.
func compare(a, b []string) []edit {
	var edits []edit
	add := func(e edit) {
		last := len(edits) - 1
		if last >= 0 && edits[last].a1 == e.a0 && edits[last].b1 == e.b0 {
			edits[last].a1, edits[last].b1 = e.a1, e.b1
			return
		}
		edits = append(edits, e)
	}
	a0, b0 := 0, 0
	for _, m := range append(anchors(a, b), match{len(a), len(b)}) {
		for _, d := range lcs.DiffLines(a[a0:m.a], b[b0:m.b]) {
			add(edit{a0 + d.Start, a0 + d.End, b0 + d.ReplStart, b0 + d.ReplEnd})
		}
		a0, b0 = m.a, m.b
	}
	return edits
}

// A match is a line that occurs in both texts.
type match struct{ a, b int }

// anchors returns the longest sequence of lines that occur once in each text and in the same order in both ("patience
// diff").
func anchors(a, b []string) []match {
	type count struct{ a, b, line int }
	seen := map[string]*count{}
	for _, l := range a {
		if c := seen[l]; c != nil {
			c.a++
		} else {
			seen[l] = &count{a: 1}
		}
	}
	for i, l := range b {
		if c := seen[l]; c != nil {
			c.b++
			c.line = i
		}
	}
	var once []match
	for i, l := range a {
		if c := seen[l]; c.a == 1 && c.b == 1 {
			once = append(once, match{i, c.line})
		}
	}
	return longest(once)
}

// longest returns the longest subsequence of m with increasing b; m is sorted by a (patience sorting).
func longest(m []match) []match {
	var tops []int // for each pile, the index in m of its top
	before := make([]int, len(m))
	for i := range m {
		pile, _ := slices.BinarySearchFunc(tops, m[i].b, func(top, b int) int { return m[top].b - b })
		before[i] = -1
		if pile > 0 {
			before[i] = tops[pile-1]
		}
		if pile == len(tops) {
			tops = append(tops, i)
		} else {
			tops[pile] = i
		}
	}
	if len(tops) == 0 {
		return nil
	}
	row := make([]match, len(tops))
	for i, n := tops[len(tops)-1], len(tops)-1; n >= 0; i, n = before[i], n-1 {
		row[n] = m[i]
	}
	return row
}

// hunks writes the hunks of a unified diff of two texts, without the header.
func hunks(w io.Writer, old, new []byte) error {
	a, b := lines(old), lines(new)
	edits := compare(a, b)
	out := &hunkWriter{w: w}
	for len(edits) > 0 {
		n := 1
		for n < len(edits) && edits[n].a0-edits[n-1].a1 <= 2*contextLines {
			n++
		}
		out.hunk(a, b, edits[:n])
		edits = edits[n:]
	}
	return out.err
}

// A hunkWriter keeps its first error.
type hunkWriter struct {
	w   io.Writer
	err error
}

// hunk writes one hunk: edits close to each other, with their context.
func (w *hunkWriter) hunk(a, b []string, edits []edit) {
	first, last := edits[0], edits[len(edits)-1]
	before := min(first.a0, contextLines)
	after := min(len(a)-last.a1, contextLines)
	a0, a1 := first.a0-before, last.a1+after
	b0, b1 := first.b0-before, last.b1+after
	w.printf("@@ -%s +%s @@\n", extent(a0, a1), extent(b0, b1))
	at := a0
	for _, e := range edits {
		w.lines(' ', a[at:e.a0])
		w.lines('-', a[e.a0:e.a1])
		w.lines('+', b[e.b0:e.b1])
		at = e.a1
	}
	w.lines(' ', a[at:a1])
}

// extent formats a range of lines for a hunk header: counted from 1; an empty range is given by the line before it.
func extent(from, to int) string {
	switch to - from {
	case 0:
		return fmt.Sprintf("%d,0", from)
	case 1:
		return fmt.Sprint(from + 1)
	}
	return fmt.Sprintf("%d,%d", from+1, to-from)
}

func (w *hunkWriter) lines(mark byte, lines []string) {
	for _, l := range lines {
		end := ""
		if l[len(l)-1] != '\n' {
			end = "\n\\ No newline at end of file\n"
		}
		w.printf("%c%s%s", mark, l, end)
	}
}

func (w *hunkWriter) printf(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.w, format, args...)
	}
}
