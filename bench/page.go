package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// -write replaces what is between these lines.
const (
	pageBegin = "<!-- begin: bench -write -->"
	pageEnd   = "<!-- end: bench -write -->"
)

const (
	medianOf = "median ms"
	setsUp   = "sets up" // the last column, of what a row does not set up, follows
)

// pageKeys are the results on the page, in its order.
func pageKeys() []string {
	return []string{"run", "levels", "peers", "peers-idle", "session", "network", "parallel"}
}

// writePage renders the stored results into the page, and the drawings beside it.
func writePage(_ context.Context, o *options) error {
	page, err := os.ReadFile(o.page)
	if err != nil {
		return err
	}
	var text strings.Builder
	described, machine := false, "" // whether a table above says what each row sets up; the machine of the section above
	for _, key := range pageKeys() {
		r, err := o.kept(key)
		if err != nil {
			return err
		}
		if r == nil {
			continue
		}
		for i, p := range r.Plots {
			name := "performance-" + r.Key
			if i > 0 {
				name += fmt.Sprintf("-%d", i+1)
			}
			if err := replace(filepath.Join(filepath.Dir(o.page), name+".svg"), p.svg()); err != nil {
				return err
			}
			p.file = name + ".svg"
		}
		if r.Machine == machine {
			r.Machine = "The same machine"
		} else {
			machine = r.Machine
		}
		r.markdown(&text, described)
		described = described || slices.Contains(r.Columns, setsUp)
	}
	if text.Len() == 0 {
		return errors.New("nothing is kept in " + o.results + "\nhint: bench/all measures")
	}
	rendered, err := between(string(page), text.String())
	if err != nil {
		return fmt.Errorf("%s: %w", o.page, err)
	}
	return replace(o.page, []byte(rendered))
}

// between replaces the text between the page's markers.
func between(page, text string) (string, error) {
	head, rest, begun := strings.Cut(page, pageBegin+"\n")
	_, tail, ended := strings.Cut(rest, pageEnd+"\n")
	if !begun || !ended || strings.Contains(head+tail, pageBegin) || strings.Contains(head+tail, pageEnd) {
		return "", fmt.Errorf("the page must have one line %q, followed by one line %q", pageBegin, pageEnd)
	}
	return head + pageBegin + "\n" + strings.TrimRight(text, "\n") + "\n\n" + pageEnd + "\n" + tail, nil
}

// markdown writes the result as a section. If a table above has described the rows, columns of what they set up are left out, and so is
// the table if the chart has its medians.
func (r *Result) markdown(w *strings.Builder, described bool) {
	fmt.Fprintf(w, "\n### %s\n\n%s. %s", r.Title, r.Date, r.Machine)
	if r.Busy != "" {
		fmt.Fprintf(w, "; %s", r.Busy)
	}
	if r.Rounds > 0 {
		fmt.Fprintf(w, "; %d rounds", r.Rounds)
	}
	w.WriteString(".\n")
	width := len(r.Columns)
	if n := slices.Index(r.Columns, setsUp); described && n >= 0 {
		width = n // the two columns are the last
	}
	if !described || len(r.Plots) == 0 || !slices.Contains(r.Columns, medianOf) {
		r.table(w, width)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "\n%s\n", strings.ReplaceAll(n, "<", "&lt;"))
	}
	for _, p := range r.Plots {
		fmt.Fprintf(w, "\n![%s](%s)\n", p.Title, p.file)
	}
}

// table writes the first columns.
func (r *Result) table(w *strings.Builder, width int) {
	line := func(cells []string) {
		for _, c := range cells[:min(width, len(cells))] {
			w.WriteString("| " + cell(c) + " ")
		}
		w.WriteString("|\n")
	}
	w.WriteString("\n")
	line(r.Columns)
	w.WriteString(strings.Repeat("|---", width) + "|\n")
	for _, row := range r.Rows {
		line(row)
	}
}

// cell escapes characters that would end a cell: it can contain the error message of a peer.
func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "<", "&lt;", "`", "'").Replace(s)
}
