package ctxtools

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"

	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/artifact"
	"corral/store/index"
)

// Processes returns the background jobs of the caller's session, running or ended, the oldest first.
func (x *Suite) Processes(c tool.Caller) []*run.Process { return x.processes.Of(run.OwnerOf(c)) }

// FindProcess returns the background job of the caller's session with this id. The error is an *Error with code NOT_FOUND.
func (x *Suite) FindProcess(c tool.Caller, id string) (*run.Process, error) {
	return x.processes.Find(run.OwnerOf(c), id)
}

// Stream writes a stored stream of the caller's output in repo to w, see Kept.
func (x *Suite) Stream(ctx context.Context, c tool.Caller, repo, handle, stream string, w io.Writer) error {
	if x.Outputs == nil {
		return errNotKept
	}
	return x.Outputs.Stream(ctx, artifact.Reader{Principal: c.Principal, Repos: []string{repo}}, handle, stream, w)
}

// A Recalled is what Recall found.
type Recalled struct {
	index.Found
	Pending int // outputs that are still being indexed
	Left    int // repositories that were not searched
}

// maxRecalled is the maximum number of repositories that Recall searches: each has a knowledge base of its own.
const maxRecalled = 16

// Recall searches what is indexed of the caller's output in the repository that is named or, if that is "", in all that the caller may
// use: those at the front of the list. The error is an *Error, or that of ctx.
func (x *Suite) Recall(ctx context.Context, c tool.Caller, named string, q index.Query) (*Recalled, error) {
	first, err := x.RepoOf(c, named)
	if err != nil {
		return nil, err
	}
	repos := []string{first}
	for _, repo := range c.Served(x.Repos) {
		if named == "" && repo != first {
			repos = append(repos, repo)
		}
	}
	all := &Recalled{Left: max(0, len(repos)-maxRecalled)}
	var bases []index.Base
	for _, repo := range repos[:len(repos)-all.Left] {
		base, err := x.searchable(c, repo)
		if err != nil {
			return nil, err
		}
		bases = append(bases, base)
	}
	x.waitIndexed(ctx, bases...)
	for _, base := range bases {
		all.Pending += x.indexing(base)
		found, err := x.Knowledge.Search(ctx, base, q)
		if err != nil {
			return nil, indexError(ctx, err)
		}
		all.Hits, all.Matched = append(all.Hits, found.Hits...), all.Matched+found.Matched
	}
	if len(repos) > 1 { // scores of several knowledge bases cannot be compared
		slices.SortStableFunc(all.Hits, func(a, b index.Hit) int { return cmp.Compare(marked(b), marked(a)) })
	}
	all.Hits = all.Hits[:min(len(all.Hits), q.Limit)]
	return all, nil
}

// marked returns the number of different words of the query in a hit.
func marked(h index.Hit) int {
	words := map[string]bool{}
	for _, m := range h.Marks {
		words[strings.ToLower(h.Text[m[0]:m[1]])] = true
	}
	return len(words)
}
