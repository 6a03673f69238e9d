package mcp

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"corral/store/artifact"
	"corral/store/index"
)

// checkFuzzy returns an error if match "fuzzy" is not possible.
func (a *queryArgs) checkFuzzy(x *Ctx) error {
	switch {
	case x == nil || x.Knowledge == nil:
		return &Error{
			Code: CodeUnsupported, Message: "match \"fuzzy\" needs a full-text index of the output, which this server does not have: use match \"literal\"",
			Details: map[string]any{"argument": "match", "missing": "full-text index"},
		}
	case a.ranged:
		return invalid("match", "\"fuzzy\" searches whole streams: with lineRange use match \"literal\"")
	}
	return nil
}

// fuzzy searches the index for the terms, including other word forms, misspellings and parts of words. It returns line
// numbers per stream for artifact.Query.At. If the artifact is not indexed yet, it is indexed first.
func (t *QueryOutput) fuzzy(ctx context.Context, a *queryArgs, r artifact.Reader) (map[string][]int64, error) {
	m, err := t.Artifacts.Find(ctx, r, a.handle)
	if err != nil {
		return nil, unreadable(a.handle, err)
	}
	b := index.Base{Repo: m.RepoID, Principal: m.Principal}
	switch err := t.Ctx.indexArtifact(ctx, b, m); {
	case errors.Is(err, errStillIndexing), errors.Is(err, errBacklogFull):
		return nil, &Error{
			Code: CodeUnavailable, Message: "the output is not indexed yet: call again in a few seconds, or use match \"literal\"",
			Details: map[string]any{"argument": "match"},
		}
	case err != nil:
		return nil, indexError(ctx, err)
	}
	q := index.Query{Artifact: a.handle, Limit: a.excerpts}
	if a.stream != "both" {
		q.Stream = a.stream
	}
	lists := make([][]index.Hit, len(a.terms))
	for n, term := range a.terms {
		q.Text = term
		found, err := t.Ctx.Knowledge.Search(ctx, b, q)
		if err != nil {
			return nil, indexError(ctx, err)
		}
		lists[n] = found.Hits
	}
	return pickLines(lists, a.excerpts), nil
}

// indexArtifact indexes the streams of an artifact that are not indexed yet.
func (x *Ctx) indexArtifact(ctx context.Context, b index.Base, m *artifact.Manifest) error {
	c := &indexTask{base: b, trace: CallerOf(ctx).Trace, tool: "runtime_query_output"}
	for _, source := range SourcesOf(m) {
		has, err := x.Knowledge.Has(ctx, b, m.ArtifactID, source.Stream)
		if err != nil {
			return err
		}
		if !has {
			c.sources = append(c.sources, source)
		}
	}
	if len(c.sources) == 0 {
		return nil
	}
	_, err := x.indexAndWait(ctx, c)
	return err
}

// SourcesOf returns an index source for each stream of an artifact that is not empty.
func SourcesOf(m *artifact.Manifest) []index.Source {
	var sources []index.Source
	add := func(stream string, bytes int64) {
		if bytes > 0 {
			sources = append(sources, index.Source{Label: labelOf(m.Runtime), Artifact: m.ArtifactID, Stream: stream, Time: m.CreatedAt})
		}
	}
	add(artifact.Stdout, m.StdoutBytes)
	add(artifact.Stderr, m.StderrBytes)
	return sources
}

// labelOf returns the source label of a runtime's output. It is that of ctx_execute, whose languages have
// other names than runtimes.
func labelOf(runtime string) string {
	if n := slices.IndexFunc(languages, func(l language) bool { return l.runtime == runtime }); n >= 0 {
		return "execute:" + languages[n].name
	}
	if runtime == "" {
		return "execute"
	}
	return "execute:" + runtime
}

// turns serializes the indexing of each artifact.
type turns struct {
	mu  sync.Mutex
	all map[string]chan struct{} // guarded by mu: each is closed when the current holder is done
}

// acquire waits for its turn at an artifact. The caller must call done.
func (t *turns) acquire(ctx context.Context, handle string) (done func(), err error) {
	mine := make(chan struct{})
	for {
		t.mu.Lock()
		other := t.all[handle]
		if other == nil {
			if t.all == nil {
				t.all = map[string]chan struct{}{}
			}
			t.all[handle] = mine
			t.mu.Unlock()
			return func() { t.release(handle, mine) }, nil
		}
		t.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (t *turns) release(handle string, mine chan struct{}) {
	t.mu.Lock()
	delete(t.all, handle)
	t.mu.Unlock()
	close(mine)
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
