package mcp

import (
	"context"
	"fmt"
	"strings"

	"corral/index"
)

const (
	// ctxListed is how many sections a reply to an intent lists.
	ctxListed = 10
	// ctxLine is how many characters of a line it has.
	ctxLine = 120
)

// ctxLast is the last line of a reply about what was indexed.
const ctxLast = "Use ctx_search(queries: [...]) to retrieve full content of any section."

// learned words what was indexed under a label: with an intent, which of it matches; without, that it is there.
func (x *Ctx) learned(ctx context.Context, b index.Base, label string, a index.Added, intent string) (string, *ctxIndexed, error) {
	in := indexedOf(a)
	var w strings.Builder
	fmt.Fprintf(&w, "Indexed %s from %q into knowledge base.\n", counted(a.Sections, "section"), label)
	if intent == "" {
		fmt.Fprintf(&w, "The output is too long to be shown (%s, %s).\n", counted(int(a.Lines), "line"), kilobytes(a.Bytes))
	} else {
		found, err := x.Knowledge.Search(ctx, b, index.Query{Text: intent, Source: a.Name, Exact: true, Limit: ctxListed})
		if err != nil {
			return "", in, err
		}
		in.Matched = &found.Matched
		matched(&w, a, found, intent)
	}
	if a.Truncated {
		w.WriteString("Not all of it was indexed.\n")
	}
	if len(in.Terms) > 0 {
		fmt.Fprintf(&w, "\nSearchable terms: %s\n", strings.Join(in.Terms, ", "))
	}
	return w.String() + "\n" + ctxLast, in, nil
}

// matched lists the sections that match an intent.
func matched(w *strings.Builder, a index.Added, found *index.Found, intent string) {
	if len(found.Hits) == 0 {
		fmt.Fprintf(w, "No sections matched intent %s in %d-line output (%s).\n", inQuotes(intent), a.Lines, kilobytes(a.Bytes))
		return
	}
	n := max(found.Matched, len(found.Hits))
	fmt.Fprintf(w, "%s matched %s (%s, %s):\n\n", counted(n, "section"), inQuotes(intent), counted(int(a.Lines), "line"), kilobytes(a.Bytes))
	words := strings.Fields(intent)
	for _, h := range found.Hits {
		fmt.Fprintf(w, "  - %s: %s\n", cutLine(h.Title, nil), cutLine(h.Line, words))
	}
	if more := n - len(found.Hits); more > 0 {
		fmt.Fprintf(w, "  … and %d more\n", more)
	}
}

// inQuotes is what a client wrote, on one line.
func inQuotes(s string) string { return `"` + strings.Join(strings.Fields(clean(s)), " ") + `"` }

// cutLine is a line within a reply: of a long one the beginning or, if the first of the words comes later, what is around it.
func cutLine(s string, words []string) string {
	line := []rune(strings.Join(strings.Fields(clean(s)), " "))
	if len(line) <= ctxLine {
		return string(line)
	}
	if at := firstOf(line, words); at > ctxLine-20 {
		return "…" + string(line[at-ctxLine/3:min(len(line), at-ctxLine/3+ctxLine-1)])
	}
	return string(line[:ctxLine-1]) + "…"
}

// firstOf returns where in a line the first word of at least three characters is, in either case, -1 without one.
func firstOf(line []rune, words []string) int {
	first := -1
	lower := strings.ToLower(string(line))
	for _, w := range words {
		at := strings.Index(lower, strings.ToLower(w))
		if at < 0 || len(w) < 3 {
			continue
		}
		if n := min(len([]rune(lower[:at])), len(line)-1); first < 0 || n < first {
			first = n
		}
	}
	return first
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func kilobytes(n int64) string { return fmt.Sprintf("%.1fKB", float64(n)/1024) }
