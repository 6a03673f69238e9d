package ctxtools

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	safe "corral/internal/text"
	"corral/mcp/tool"
	"corral/store/index"
)

const (
	// maxWholeSection is the maximum number of characters of a section that is shown whole.
	maxWholeSection = 1500
	// excerptMargin is how many bytes of a longer section are shown before and after a match.
	excerptMargin = 300
	// maxAnswers is the maximum number of bytes of sections in one reply, well below the maximum of a message.
	maxAnswers = 1 << 20
)

// An answer is the result of one query.
type answer struct {
	Query     string            `json:"query"`
	Hits      []hitReply        `json:"hits"`
	Matched   int               `json:"matched"`             // number of sections that match, including those that are not in hits
	Corrected map[string]string `json:"corrected,omitempty"` // words that are in no section, each with the word that was searched for instead
	Cut       bool              `json:"cut,omitempty"`       // a word is in more sections than were ranked: there may be better ones
	Omitted   int               `json:"omitted,omitempty"`   // number of sections left out, because a reply has at most 1 MiB of them
}

// A hitReply is one section found.
type hitReply struct {
	Source     string `json:"source"` // name of the source
	Time       string `json:"time"`   // when it was indexed, RFC 3339
	Title      string `json:"title"`
	Content    string `json:"content"`             // the section, or the parts of it around matches
	LineStart  int64  `json:"lineStart,omitempty"` // first line of the section in its source, counted from 1
	LineEnd    int64  `json:"lineEnd,omitempty"`
	Line       string `json:"line,omitempty"`           // line that matched best
	LineNumber int64  `json:"lineNumber,omitempty"`     // number of that line
	Stream     string `json:"stream,omitempty"`         // stdout or stderr, of a job's output
	Artifact   string `json:"artifactHandle,omitempty"` // of a job's output: for runtime_query_output, as long as that is kept
}

// newAnswer returns the answer to a query from what was found.
func newAnswer(query string, f *index.Found) *answer {
	a := &answer{Query: tool.Clean(query), Hits: []hitReply{}, Matched: max(f.Matched, len(f.Hits)), Cut: f.Cut}
	for _, h := range f.Hits {
		a.Hits = append(a.Hits, hitReply{
			Source: tool.Clean(h.Source), Time: stamp(h.Time), Title: titleOf(h), Content: excerpt(tool.Clean(h.Text), h.Marks),
			LineStart: h.LineStart, LineEnd: h.LineEnd, Line: tool.CutText(singleLine(h.Line), tool.MaxShort), LineNumber: h.LineNumber,
			Stream: h.Stream, Artifact: h.Artifact,
		})
	}
	for word, instead := range f.Corrected {
		if a.Corrected == nil {
			a.Corrected = map[string]string{}
		}
		a.Corrected[tool.Clean(word)] = tool.Clean(instead)
	}
	return a
}

// titleOf returns a section's title, or its line numbers if it has none.
func titleOf(h index.Hit) string {
	return cmp.Or(singleLine(h.Title), fmt.Sprintf("lines %d-%d", h.LineStart, h.LineEnd))
}

// write returns one answer as text and subtracts its size from room.
func (a *answer) write(room *int) string {
	var b strings.Builder
	b.WriteString("## " + singleLine(a.Query) + "\n")
	if len(a.Hits) == 0 {
		b.WriteString("No results found.")
	}
	for n := range a.Hits {
		h := &a.Hits[n]
		if *room -= len(h.Content) + len(h.Title) + len(h.Source); *room < 0 {
			a.Omitted = len(a.Hits) - n
			a.Hits = a.Hits[:n]
			break
		}
		if n > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "\n--- [%s | %s] ---\n### %s\n\n%s", singleLine(h.Source), h.Time, h.Title, h.Content)
	}
	for _, note := range a.notes() {
		b.WriteString("\n\n_(" + note + ")_")
	}
	return b.String()
}

// notes returns hints about how the query was answered.
func (a *answer) notes() []string {
	var notes, words []string
	for _, word := range slices.Sorted(maps.Keys(a.Corrected)) {
		words = append(words, fmt.Sprintf("%q for %q", singleLine(a.Corrected[word]), singleLine(word)))
	}
	if len(words) > 0 {
		notes = append(notes, "searched for "+strings.Join(words, ", "))
	}
	if a.Cut {
		notes = append(notes, "a word of this query is in more sections than are searched: add a rarer word, or a source")
	}
	if a.Omitted > 0 {
		notes = append(notes, Counted(a.Omitted, "section")+" left out: the reply is full. Send fewer queries at once")
	}
	return notes
}

// excerpt returns a section as it is shown: whole if it is short, otherwise the parts around its matches. marks are byte
// ranges of text; invalid ones are ignored, and without a valid one excerpt returns the beginning.
func excerpt(text string, marks [][2]int) string {
	if len(text) <= maxWholeSection || utf8.RuneCountInString(text) <= maxWholeSection {
		return text
	}
	windows := windowsOf(text, marks)
	if len(windows) == 0 {
		windows = [][2]int{{0, len(safe.Head(text, maxWholeSection))}}
	}
	var b strings.Builder
	for n, w := range windows {
		switch {
		case n > 0:
			b.WriteString("\n…\n")
		case w[0] > 0:
			b.WriteString("…")
		}
		b.WriteString(text[w[0]:w[1]])
	}
	if windows[len(windows)-1][1] < len(text) {
		b.WriteString("…")
	}
	return b.String()
}

// windowsOf returns the parts of a text around its marks, in order and not overlapping.
func windowsOf(text string, marks [][2]int) [][2]int {
	var windows [][2]int
	sorted := slices.SortedFunc(slices.Values(marks), func(a, b [2]int) int { return a[0] - b[0] })
	for _, m := range sorted {
		if m[0] < 0 || m[1] <= m[0] || m[1] > len(text) {
			continue
		}
		from, to := len(safe.Head(text, max(m[0]-excerptMargin, 0))), len(safe.Head(text, m[1]+excerptMargin))
		if n := len(windows); n > 0 && from <= windows[n-1][1] {
			windows[n-1][1] = max(windows[n-1][1], to)
			continue
		}
		windows = append(windows, [2]int{from, to})
	}
	return windows
}

// answersText returns the answers as text. If they exceed maxAnswers, the last sections of an answer are left out of the text
// and removed from the answer.
func answersText(answers []*answer) string {
	room := maxAnswers
	parts := make([]string, len(answers))
	for n, a := range answers {
		parts[n] = a.write(&room)
	}
	return strings.Join(parts, "\n\n---\n\n")
}
