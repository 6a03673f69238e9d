package agent

import (
	"fmt"
	"strings"
	"time"

	"corral/mcp/ctxtools"
	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/index"
)

// Bounds of a reply to a search.
const (
	maxHits    = 5
	maxHitText = 320 // of one hit; the reply is read by a model, and output reads more of what it chooses
)

// hits returns what a search found as text.
func hits(found *ctxtools.Recalled, query string, now time.Time) string {
	var b strings.Builder
	for _, h := range found.Hits {
		fmt.Fprintf(&b, "%s, %s ago, lines %d-%d of %s:\n", where(h), run.Duration(now.Sub(h.Time)), h.LineStart, h.LineEnd, h.Stream)
		b.WriteString(run.Line(excerpt(h, query)))
	}
	var parts []string
	if more := found.Matched - len(found.Hits); more > 0 {
		parts = append(parts, ctxtools.Counted(more, "more place"))
	}
	if len(found.Hits) == 0 {
		parts = append(parts, "nothing found")
	}
	if found.Pending > 0 {
		parts = append(parts, ctxtools.Counted(found.Pending, "output")+" not searched: still being indexed")
	}
	if found.Left > 0 {
		parts = append(parts, fmt.Sprintf("repositories not searched: %d, give repoId", found.Left))
	}
	return b.String() + run.Footer(parts)
}

// where names the output of a hit.
func where(h index.Hit) string {
	if h.Artifact != "" {
		return h.Artifact
	}
	return tool.Clean(h.Source)
}

// excerpt returns the text of a hit or, if that is long, the lines of it that have a word of the query.
func excerpt(h index.Hit, query string) string {
	all := tool.Clean(h.Text)
	if len(all) <= maxHitText {
		return all
	}
	f := newFindings(query)
	for n, text := range strings.Split(all, "\n") {
		f.see(h.LineStart+int64(n), tool.CutText(text, maxHitText))
	}
	var b strings.Builder
	for n, m := range f.best() {
		if line := fmt.Sprintf("%d: %s\n", m.line, m.text); n == 0 || b.Len()+len(line) <= maxHitText {
			b.WriteString(line)
		}
	}
	if b.Len() == 0 {
		return tool.CutText(all, maxHitText)
	}
	return b.String()
}
