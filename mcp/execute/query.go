package execute

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"corral/mcp/tool"
	"corral/store/artifact"

	safe "corral/internal/text"
)

// Artifacts reads stored output of jobs. *artifact.Store implements it.
type Artifacts interface {
	// Query returns a part of an artifact's streams, as q describes it.
	Query(ctx context.Context, q artifact.Query) (*artifact.Answer, error)
	// Find returns the manifest of an artifact that r may read.
	Find(ctx context.Context, r artifact.Reader, handle string) (*artifact.Manifest, error)
}

// QueryOutput is the tool runtime_query_output: it reads parts of a job's stored output.
type QueryOutput struct {
	Artifacts Artifacts
	Repos     []string // ids of the repositories that are served
	// Index is for match "fuzzy"; nil refuses such queries.
	Index FuzzyIndex
}

// queryArgs are the arguments of runtime_query_output.
type queryArgs struct {
	Handle   string     `arg:"artifactHandle,required,min=1,max=256" pattern:"^[A-Za-z0-9_-]+$" about:"from runtime_execute"`
	Terms    []string   `arg:"queryTerms,items=10,min=1,max=1KiB" pattern:"^[^\\n]+$" about:"required without lineRange"`
	Excerpts int        `arg:"maxExcerpts,min=1,max=100" default:"10"`
	Context  int        `arg:"contextLines,min=0,max=20" default:"3" about:"around a match"`
	Stream   string     `arg:"stream" enum:"stdout,stderr,both" default:"both"`
	Range    *lineRange `arg:"lineRange" about:"at most 20000 lines"`
	Match    string     `arg:"match" enum:"literal,fuzzy" default:"literal"`
}

// A lineRange is a range of lines. The largest line number accepted is more than an output can have.
type lineRange struct {
	Stream *string `arg:"stream" enum:"stdout,stderr" default:"stdout" about:"default: the outer stream, or stdout"`
	Start  int     `arg:"startLine,required,min=1,max=1048576MiB"`
	End    int     `arg:"endLine,required,min=1,max=1048576MiB"`
}

// Values of queryArgs.Match.
const (
	matchLiteral = "literal"
	matchFuzzy   = "fuzzy"
)

// Defaults of queryArgs.
const (
	defaultExcerpts = 10
	defaultContext  = 3
)

const queryDescription = `Read parts of the output of an earlier runtime_execute call. Nothing is run.

queryTerms gives excerpts around matching lines; match "fuzzy" also finds other forms, misspellings and parts of words. If nothing matches, you get the first lines (matchStatus noMatchFallback).

lineRange ({"startLine": 1, "endLine": 200}) reads lines by number. If truncated, continue after the lineEnd of the first excerpt.

NOT_FOUND: no such output of yours. EXPIRED: run the code again.`

// Name implements Tool.
func (t *QueryOutput) Name() string { return "runtime_query_output" }

// Definition implements Tool.
func (t *QueryOutput) Definition() tool.Definition {
	return tool.Definition{
		Name: t.Name(), Dotted: "sdl.runtime.queryOutput", Title: "Read the output of a sandboxed run",
		Description: queryDescription,
		Input:       tool.InputSchema(queryArgs{}, tool.Strict, nil),
		Output:      tool.ReplyOutline[queryReply](),
		ReadOnly:    true, Idempotent: true,
	}
}

func decodeQuery(arguments json.RawMessage) (*queryArgs, error) {
	a := &queryArgs{}
	if err := tool.Decode(arguments, a, tool.Strict); err != nil {
		return nil, err
	}
	switch {
	case a.Range == nil && len(a.Terms) == 0:
		return nil, tool.Invalid("queryTerms", "queryTerms or lineRange is required")
	case a.Range != nil && a.Range.End < a.Range.Start:
		return nil, tool.Invalid("lineRange.endLine", "%d is before startLine, %d", a.Range.End, a.Range.Start)
	case a.Range != nil:
		return a, a.checkRange()
	}
	return a, nil
}

// checkRange returns an error if an argument beside lineRange would have no effect.
func (a *queryArgs) checkRange() error {
	// Clients also send defaults explicitly.
	for name, asked := range map[string]bool{"maxExcerpts": a.Excerpts != defaultExcerpts, "contextLines": a.Context != defaultContext} {
		if asked && len(a.Terms) == 0 {
			return tool.Invalid(name, "has no effect on lineRange without queryTerms")
		}
	}
	switch {
	case a.Stream == "both":
	case a.Range.Stream == nil:
		a.Range.Stream = &a.Stream
	case a.Stream != *a.Range.Stream:
		return tool.Invalid("stream", "%q contradicts lineRange.stream %q", a.Stream, *a.Range.Stream)
	}
	return nil
}

// A queryReply is the structuredContent of runtime_query_output.
type queryReply struct {
	Handle    string    `json:"artifactHandle"`
	Excerpts  []Excerpt `json:"excerpts"`
	Lines     int64     `json:"totalLines"` // of the streams that were searched
	Bytes     int64     `json:"totalBytes"` // of the streams that were searched
	Streams   []string  `json:"searchedStreams"`
	Match     string    `json:"matchStatus" enum:"matched,noMatchFallback,lineRange"`
	Truncated bool      `json:"truncated,omitempty"` // there is more than the reply has
}

// Call implements Tool.
func (t *QueryOutput) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	a, err := decodeQuery(arguments)
	if err != nil {
		return tool.Result{}, err
	}
	q := a.query()
	q.Reader = t.reader(tool.CallerOf(ctx))
	if a.Match == matchFuzzy {
		if err := a.checkFuzzy(t.Index); err != nil {
			return tool.Result{}, err
		}
		q.Terms = nil
		if q.At, err = t.fuzzy(ctx, a, q.Reader); err != nil {
			return tool.Result{}, err
		}
	}
	found, err := t.Artifacts.Query(ctx, q)
	if err != nil {
		return tool.Result{}, unreadable(a.Handle, err)
	}
	return tool.Result{Structured: &queryReply{
		Handle: a.Handle, Excerpts: excerptsOf(found.Excerpts), Lines: found.Lines, Bytes: found.Bytes, Streams: found.Streams,
		Match: found.Match, Truncated: found.Truncated,
	}}, nil
}

func (a *queryArgs) query() artifact.Query {
	q := artifact.Query{Handle: a.Handle, Terms: a.Terms, Excerpts: a.Excerpts, Context: a.Context}
	if a.Stream != "both" {
		q.Stream = a.Stream
	}
	if r := a.Range; r != nil {
		q.Range = &artifact.Range{Stream: artifact.Stdout, Start: int64(r.Start), End: int64(r.End)}
		if r.Stream != nil {
			q.Range.Stream = *r.Stream
		}
	}
	return q
}

// reader returns the identity with which artifacts are read: the principal, and the served repositories that it may use.
func (t *QueryOutput) reader(c tool.Caller) artifact.Reader {
	repos := slices.Clone(t.Repos)
	if c.Repos != nil {
		repos = slices.DeleteFunc(repos, func(id string) bool { return !slices.Contains(c.Repos, id) })
	}
	if repos == nil {
		repos = []string{} // nil would mean all
	}
	return artifact.Reader{Principal: c.Principal, Repos: repos}
}

// unreadable converts an error of reading an artifact. It does not reveal whether an artifact exists that the caller may not
// read.
func unreadable(handle string, err error) error {
	details := map[string]any{"artifactHandle": handle}
	switch {
	case errors.Is(err, artifact.ErrNotFound):
		return &tool.Error{Code: tool.CodeNotFound, Message: "Artifact " + safe.Line(handle, tool.MaxShown) + " not found", Details: details}
	case errors.Is(err, artifact.ErrExpired):
		return &tool.Error{Code: tool.CodeExpired, Message: tool.Clean(err.Error()), Details: details}
	case errors.Is(err, artifact.ErrCorrupt):
		return &tool.Error{Code: tool.CodeCorrupt, Message: tool.Clean(err.Error()), Details: details}
	}
	return err
}

// An Excerpt is an artifact.Excerpt with its description.
type Excerpt struct {
	LineStart int64  `json:"lineStart"` // first line, counted from 1
	LineEnd   int64  `json:"lineEnd"`
	Content   string `json:"content"`
	Source    string `json:"source" enum:"stdout,stderr"`
	Fallback  bool   `json:"fallback,omitempty"` // nothing matched: these are the first lines
}

func excerptsOf(list []artifact.Excerpt) []Excerpt {
	excerpts := make([]Excerpt, len(list))
	for n, e := range list {
		excerpts[n] = Excerpt(e)
	}
	return excerpts
}
