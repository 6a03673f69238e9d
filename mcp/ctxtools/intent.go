package ctxtools

import (
	"context"
	"fmt"
	"strings"

	"corral/mcp/tool"
	"corral/store/index"
)

const (
	// maxIntentSections is the maximum number of sections listed in the reply to an intent.
	maxIntentSections = 10
	// maxIntentLine is the maximum number of characters shown of a line.
	maxIntentLine = 120
)

// searchHint is the last line of a reply about indexed output.
const searchHint = "Use ctx_search(queries: [...]) to retrieve full content of any section."

// indexedText returns the text about output that was indexed under label: the sections that match the intent, or without an
// intent a pointer to the index.
func indexedText(ctx context.Context, k Knowledge, b index.Base, label string, a index.Added, intent string,
) (string, *indexedOutput, error) {
	in := indexedOf(a)
	var w strings.Builder
	fmt.Fprintf(&w, "Indexed %s from %q into knowledge base.\n", Counted(a.Sections, "section"), label)
	if intent == "" {
		fmt.Fprintf(&w, "The output is too long to be shown (%s, %s).\n", Counted(int(a.Lines), "line"), kilobytes(a.Bytes))
	} else {
		found, err := k.Search(ctx, b, index.Query{Text: intent, Source: a.Name, Exact: true, Limit: maxIntentSections})
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
	return w.String() + "\n" + searchHint, in, nil
}

// matched writes the list of sections that match an intent.
func matched(w *strings.Builder, a index.Added, found *index.Found, intent string) {
	if len(found.Hits) == 0 {
		fmt.Fprintf(w, "No sections matched intent %s in %d-line output (%s).\n", quotedLine(intent), a.Lines, kilobytes(a.Bytes))
		return
	}
	n := max(found.Matched, len(found.Hits))
	fmt.Fprintf(w, "%s matched %s (%s, %s):\n\n", Counted(n, "section"), quotedLine(intent), Counted(int(a.Lines), "line"),
		kilobytes(a.Bytes))
	words := strings.Fields(intent)
	for _, h := range found.Hits {
		fmt.Fprintf(w, "  - %s: %s\n", cutLine(h.Title, nil), cutLine(h.Line, words))
	}
	if more := n - len(found.Hits); more > 0 {
		fmt.Fprintf(w, "  … and %d more\n", more)
	}
}

// quotedLine returns client input on one line, in quotes.
func quotedLine(s string) string { return `"` + strings.Join(strings.Fields(tool.Clean(s)), " ") + `"` }

// cutLine returns at most maxIntentLine characters of a line: its beginning or, if the first of the words comes
// later, an excerpt around that.
func cutLine(s string, words []string) string {
	line := []rune(strings.Join(strings.Fields(tool.Clean(s)), " "))
	if len(line) <= maxIntentLine {
		return string(line)
	}
	if at := firstOf(line, words); at > maxIntentLine-20 {
		return "…" + string(line[at-maxIntentLine/3:min(len(line), at-maxIntentLine/3+maxIntentLine-1)])
	}
	return string(line[:maxIntentLine-1]) + "…"
}

// firstOf returns the index of the first occurrence, ignoring case, of a word of at least three bytes, or -1.
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

// A indexedOutput describes an indexed output.
type indexedOutput struct {
	Source    string   `json:"source"` // its name: argument source of ctx_search
	Sections  int      `json:"sections"`
	Lines     int64    `json:"lines"`
	Bytes     int64    `json:"bytes"`
	Matched   *int     `json:"matched,omitempty"`   // sections that match the intent
	Terms     []string `json:"terms"`               // words that distinguish it from other output
	Truncated bool     `json:"truncated,omitempty"` // not all of it was indexed
}

func indexedOf(a index.Added) *indexedOutput {
	terms := make([]string, 0, len(a.Terms))
	for _, t := range a.Terms {
		terms = append(terms, tool.Clean(t))
	}
	return &indexedOutput{Source: a.Name, Sections: a.Sections, Lines: a.Lines, Bytes: a.Bytes, Terms: terms, Truncated: a.Truncated}
}
