package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// -write replaces what is between these lines.
const (
	pageBegin = "<!-- begin: bench -write -->"
	pageEnd   = "<!-- end: bench -write -->"
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
		r.markdown(&text)
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

// markdown writes the result as a section.
func (r *Result) markdown(w *strings.Builder) {
	fmt.Fprintf(w, "\n### %s\n\n%s. %s", r.Title, r.Date, r.Machine)
	if r.Busy != "" {
		fmt.Fprintf(w, "; %s", r.Busy)
	}
	if r.Rounds > 0 {
		fmt.Fprintf(w, "; %d rounds", r.Rounds)
	}
	w.WriteString(".\n\n")
	line := func(cells []string) {
		for _, c := range cells {
			w.WriteString("| " + cell(c) + " ")
		}
		w.WriteString("|\n")
	}
	line(r.Columns)
	w.WriteString(strings.Repeat("|---", len(r.Columns)) + "|\n")
	for _, row := range r.Rows {
		line(row)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "\n%s\n", strings.ReplaceAll(n, "<", "&lt;"))
	}
	for _, p := range r.Plots {
		fmt.Fprintf(w, "\n![%s](%s)\n", p.Title, p.file)
	}
}

// cell escapes characters that would end a cell: it can contain the error message of a peer.
func cell(s string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "<", "&lt;", "`", "'").Replace(s)
}
