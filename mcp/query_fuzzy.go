package mcp

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"corral/artifact"
	"corral/index"
)

// checkFuzzy returns a nil error for what match "fuzzy" can do.
func (a *queryArgs) checkFuzzy(x *Ctx) error {
	switch {
	case x == nil || x.Knowledge == nil:
		return &Error{
			Code: CodeUnsupported, Message: "match \"fuzzy\" needs a full-text index of the output, which this server does not have: use match \"literal\"",
			Details: map[string]any{"argument": "match", "missing": "full-text index"},
		}
	case a.ranged:
		return invalid("match", "fuzzy searches all of a stream: lineRange goes with literal")
	}
	return nil
}

// fuzzy finds what is like the terms: words in other forms, misspelled, or parts of others. It returns where, as an artifact's
// Query wants it, and has the artifact indexed first if it is not.
func (t *QueryOutput) fuzzy(ctx context.Context, a *queryArgs, r artifact.Reader) (map[string][]int64, error) {
	m, err := t.Artifacts.Find(ctx, r, a.handle)
	if err != nil {
		return nil, unreadable(a.handle, err)
	}
	b := index.Base{Repo: m.RepoID, Principal: m.Principal}
	switch err := t.Ctx.indexArtifact(ctx, b, m); {
	case errors.Is(err, errStill), errors.Is(err, errCrowded):
		return nil, &Error{
			Code: CodeUnavailable, Message: "the output is not indexed yet: call again in some seconds, or use match \"literal\"",
			Details: map[string]any{"argument": "match"},
		}
	case err != nil:
		return nil, notSearched(ctx, err)
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
			return nil, notSearched(ctx, err)
		}
		lists[n] = found.Hits
	}
	return places(lists, a.excerpts), nil
}

// indexArtifact has those streams of an artifact indexed that are not.
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
	_, err := x.finish(ctx, c)
	return err
}

// SourcesOf returns what an artifact is for an index: a source for each stream that has something in it.
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

// labelOf is what output of a runtime is indexed as: the label of ctx_execute, whose languages have other names.
func labelOf(runtime string) string {
	if n := slices.IndexFunc(languages, func(l language) bool { return l.runtime == runtime }); n >= 0 {
		return "execute:" + languages[n].name
	}
	if runtime == "" {
		return "execute"
	}
	return "execute:" + runtime
}

// turns are of those who index an artifact: one at a time.
type turns struct {
	mu  sync.Mutex
	all map[string]chan struct{} // guarded by mu: each is closed when who has the turn is done
}

// take waits for the turn of an artifact. Who has it calls done.
func (t *turns) take(ctx context.Context, handle string) (done func(), err error) {
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
			return func() { t.done(handle, mine) }, nil
		}
		t.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (t *turns) done(handle string, mine chan struct{}) {
	t.mu.Lock()
	delete(t.all, handle)
	t.mu.Unlock()
	close(mine)
}

// places are lines of hits, at most most of them: each hit's best, the best hits of all terms first, then the other lines of
// theirs that match.
func places(lists [][]index.Hit, most int) map[string][]int64 {
	p := &placing{at: map[string][]int64{}, left: most}
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

// A placing is lines of streams that are being chosen.
type placing struct {
	at   map[string][]int64
	left int
}

func (p *placing) add(stream string, lines []int64) {
	for _, n := range lines {
		if p.left > 0 && n > 0 && !slices.Contains(p.at[stream], n) {
			p.at[stream] = append(p.at[stream], n)
			p.left--
		}
	}
}

func bestLine(h index.Hit) []int64 { return []int64{h.LineNumber} }

// markedLines are the lines of a hit that something matched in. The text of some hits is no lines of its stream: of JSON, or
// a part of a line.
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
