package execute

import (
	"context"
	"errors"
	"slices"
	"strings"

	"corral/mcp/tool"
	"corral/store/artifact"
	"corral/store/index"
)

// A FuzzyIndex finds lines of artifacts by words that need not match exactly. Its errors are for clients, except ErrNotIndexed.
type FuzzyIndex interface {
	// IndexArtifact indexes the streams of an artifact that are not indexed yet. ErrNotIndexed means that this takes longer
	// than a reply can wait.
	IndexArtifact(ctx context.Context, b index.Base, m *artifact.Manifest) error
	// Search returns the sections that match q, the best first.
	Search(ctx context.Context, b index.Base, q index.Query) (*index.Found, error)
}

// ErrNotIndexed reports an artifact that is not indexed yet.
var ErrNotIndexed = errors.New("the output is not indexed yet")

// checkFuzzy returns an error if match "fuzzy" is not possible.
func (a *queryArgs) checkFuzzy(x FuzzyIndex) error {
	switch {
	case x == nil:
		return &tool.Error{
			Code: tool.CodeUnsupported, Message: "match \"fuzzy\" needs a full-text index of the output, which this server does not have: use match \"literal\"",
			Details: map[string]any{"argument": "match", "missing": "full-text index"},
		}
	case a.Range != nil:
		return tool.Invalid("match", "\"fuzzy\" searches whole streams: with lineRange use match \"literal\"")
	}
	return nil
}

// fuzzy searches the index for the terms, including other word forms, misspellings and parts of words. It returns line
// numbers per stream for artifact.Query.At. If the artifact is not indexed yet, it is indexed first.
func (t *QueryOutput) fuzzy(ctx context.Context, a *queryArgs, r artifact.Reader) (map[string][]int64, error) {
	m, err := t.Artifacts.Find(ctx, r, a.Handle)
	if err != nil {
		return nil, unreadable(a.Handle, err)
	}
	b := index.Base{Repo: m.RepoID, Principal: m.Principal}
	switch err := t.Index.IndexArtifact(ctx, b, m); {
	case errors.Is(err, ErrNotIndexed):
		return nil, &tool.Error{
			Code: tool.CodeUnavailable, Message: "the output is not indexed yet: call again in a few seconds, or use match \"literal\"",
			Details: map[string]any{"argument": "match"},
		}
	case err != nil:
		return nil, err
	}
	q := index.Query{Artifact: a.Handle, Limit: a.Excerpts}
	if a.Stream != "both" {
		q.Stream = a.Stream
	}
	lists := make([][]index.Hit, len(a.Terms))
	for n, term := range a.Terms {
		q.Text = term
		found, err := t.Index.Search(ctx, b, q)
		if err != nil {
			return nil, err
		}
		lists[n] = found.Hits
	}
	return pickLines(lists, a.Excerpts), nil
}

// pickLines returns at most limit line numbers, per stream: first the best line of each hit, in order of rank over all terms,
// then the other matching lines of the hits.
func pickLines(lists [][]index.Hit, limit int) map[string][]int64 {
	p := &linePicker{at: map[string][]int64{}, left: limit}
	for _, lines := range []func(index.Hit) []int64{bestLine, markedLines} {
		for rank := 0; p.left > 0; rank++ {
			more := false
			for _, list := range lists {
				if rank < len(list) {
					more = true
					p.add(list[rank].Stream, lines(list[rank]))
				}
			}
			if !more {
				break
			}
		}
	}
	return p.at
}

// A linePicker collects the line numbers that pickLines returns.
type linePicker struct {
	at   map[string][]int64
	left int
}

func (p *linePicker) add(stream string, lines []int64) {
	for _, n := range lines {
		if p.left > 0 && n > 0 && !slices.Contains(p.at[stream], n) {
			p.at[stream] = append(p.at[stream], n)
			p.left--
		}
	}
}

func bestLine(h index.Hit) []int64 { return []int64{h.LineNumber} }

// markedLines returns the lines of a hit that match. It returns nil if the hit's text is not a sequence of whole lines of its
// stream: text extracted from JSON, or a part of a long line.
func markedLines(h index.Hit) []int64 {
	if int64(strings.Count(strings.TrimSuffix(h.Text, "\n"), "\n")) != h.LineEnd-h.LineStart {
		return nil
	}
	var lines []int64
	at, n := 0, h.LineStart
	for _, m := range h.Marks {
		if m[0] < at || m[0] > len(h.Text) {
			continue
		}
		n += int64(strings.Count(h.Text[at:m[0]], "\n"))
		at = m[0]
		lines = append(lines, n)
	}
	return slices.Compact(lines)
}
