package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"corral/store/artifact"

	safe "corral/internal/text"
)

// Artifacts reads stored output of jobs. *artifact.Store implements it.
type Artifacts interface {
	Query(ctx context.Context, q artifact.Query) (*artifact.Answer, error)
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
	handle      string
	terms       []string
	excerpts    int
	context     int
	stream      string
	ranged      bool
	rangeStream string
	start, end  int
	match       string
}

const (
	matchLiteral = "literal"
	matchFuzzy   = "fuzzy"
)

func newQueryArgs() *queryArgs {
	return &queryArgs{excerpts: 10, context: 3, stream: "both", rangeStream: "stdout", match: matchLiteral}
}

// lastLine is the largest line number accepted, more than an output can have.
const lastLine = 1 << 40

func (a *queryArgs) fields() []field {
	return []field{
		{
			name: "artifactHandle", into: &a.handle, required: true, min: 1, max: 256, pattern: isHandle, expr: "^[A-Za-z0-9_-]+$",
			about: "from the reply of runtime_execute",
		},
		{
			name: "queryTerms", into: &a.terms, items: 10, min: 1, max: 1024, pattern: oneLine, expr: "^[^\\n]+$",
			about: "words to look for, as they are, in either case; required unless lineRange is given. With lineRange: in these lines alone",
		},
		{name: "maxExcerpts", into: &a.excerpts, min: 1, max: 100, about: "how many excerpts at most; needs queryTerms"},
		{name: "contextLines", into: &a.context, min: 0, max: 20, about: "lines around each line that matches; needs queryTerms"},
		{name: "stream", into: &a.stream, enum: []string{"stdout", "stderr", "both"}, about: "where to look"},
		{name: "lineRange", into: &a.ranged, about: "lines to read; at most 20000 are returned", fields: []field{
			{name: "stream", into: &a.rangeStream, enum: []string{"stdout", "stderr"}, about: "stdout, unless stream says otherwise"},
			{name: "startLine", into: &a.start, required: true, min: 1, max: lastLine, about: "the first line is 1"},
			{name: "endLine", into: &a.end, required: true, min: 1, max: lastLine, about: "the last line wanted"},
		}},
		{
			name: "match", into: &a.match, enum: []string{matchLiteral, matchFuzzy},
			about: "literal: terms as they are; fuzzy: also in other forms, misspelled, or as parts of words, the lines that match best",
		},
	}
}

// isHandle is [A-Za-z0-9_-]+.
func isHandle(s string) bool {
	for _, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '_' && c != '-' {
			return false
		}
	}
	return s != ""
}

const queryDescription = `Read parts of the output of an earlier runtime_execute call, by its artifactHandle. Nothing is run again.

Give queryTerms to search: you get excerpts, each with contextLines of lines around a line that contains one of the terms (literal, in either case). With match "fuzzy" a term is words in any order, and is found in other forms (connect, connection), misspelled, and in parts of identifiers: you get the lines that match best. matchStatus says what you got: matched; noMatchFallback: nothing matched, these are the first lines; lineRange.

Give lineRange ({"stream": "stdout", "startLine": 1, "endLine": 200}) to read lines by number, e.g. around an excerpt. With queryTerms too, the first excerpt is these lines, and the others are of what matches in them. A reply has 1 MiB of text at most: when truncated is there, ask again from the lineEnd of the first excerpt + 1.

Output is kept for a limited time (24 hours by default). NOT_FOUND: there is no such output, or it is not yours. EXPIRED: it was there; run the code again.`

// Name implements Tool.
func (t *QueryOutput) Name() string { return "runtime_query_output" }

// Definition implements Tool.
func (t *QueryOutput) Definition() Definition {
	return Definition{
		Name: t.Name(), Dotted: "sdl.runtime.queryOutput", Title: "Read the output of a sandboxed run",
		Description: queryDescription,
		Input:       inputSchema(newQueryArgs().fields()),
		Output: replySchema(properties{
			{"artifactHandle", text("")},
			{"excerpts", excerptsSchema("")},
			{"totalLines", integer("of the streams that were searched")},
			{"totalBytes", integer("of the streams that were searched")},
			{"searchedStreams", &schema{Type: "array", Items: text("")}},
			{"matchStatus", &schema{Type: "string", Enum: []string{"matched", "noMatchFallback", "lineRange"}}},
			{"truncated", boolean("there is more than what is here")},
			{"message", text("of an error: what is wrong")},
		}),
		ReadOnly: true, Idempotent: true,
	}
}

func decodeQuery(arguments json.RawMessage) (*queryArgs, error) {
	a := newQueryArgs()
	if err := decodeArguments(arguments, a.fields()); err != nil {
		return nil, err
	}
	switch {
	case !a.ranged && len(a.terms) == 0:
		return nil, invalid("queryTerms", "queryTerms or lineRange is required")
	case a.ranged && a.end < a.start:
		return nil, invalid("lineRange.endLine", "%d is before startLine, %d", a.end, a.start)
	case a.ranged:
		return a, a.checkRange(arguments)
	}
	return a, nil
}

// checkRange returns an error if an argument beside lineRange would have no effect.
func (a *queryArgs) checkRange(arguments json.RawMessage) error {
	usual := newQueryArgs() // clients also send defaults explicitly
	for name, asked := range map[string]bool{"maxExcerpts": a.excerpts != usual.excerpts, "contextLines": a.context != usual.context} {
		if asked && len(a.terms) == 0 {
			return invalid(name, "has no effect on lineRange without queryTerms")
		}
	}
	switch {
	case a.stream == "both":
	case member(member(arguments, "lineRange"), "stream") == nil:
		a.rangeStream = a.stream
	case a.stream != a.rangeStream:
		return invalid("stream", "%q contradicts lineRange.stream %q", a.stream, a.rangeStream)
	}
	return nil
}

// A queryReply is the structuredContent of runtime_query_output.
type queryReply struct {
	Handle    string             `json:"artifactHandle"`
	Excerpts  []artifact.Excerpt `json:"excerpts"`
	Lines     int64              `json:"totalLines"`
	Bytes     int64              `json:"totalBytes"`
	Streams   []string           `json:"searchedStreams"`
	Match     string             `json:"matchStatus"`
	Truncated bool               `json:"truncated,omitempty"`
}

// Call implements Tool.
func (t *QueryOutput) Call(ctx context.Context, arguments json.RawMessage) (ToolResult, error) {
	a, err := decodeQuery(arguments)
	if err != nil {
		return ToolResult{}, err
	}
	q := a.query()
	q.Reader = t.reader(CallerOf(ctx))
	if a.match == matchFuzzy {
		if err := a.checkFuzzy(t.Index); err != nil {
			return ToolResult{}, err
		}
		q.Terms = nil
		if q.At, err = t.fuzzy(ctx, a, q.Reader); err != nil {
			return ToolResult{}, err
		}
	}
	found, err := t.Artifacts.Query(ctx, q)
	if err != nil {
		return ToolResult{}, unreadable(a.handle, err)
	}
	return ToolResult{Structured: &queryReply{
		Handle: a.handle, Excerpts: found.Excerpts, Lines: found.Lines, Bytes: found.Bytes, Streams: found.Streams,
		Match: found.Match, Truncated: found.Truncated,
	}}, nil
}

func (a *queryArgs) query() artifact.Query {
	q := artifact.Query{Handle: a.handle, Terms: a.terms, Excerpts: a.excerpts, Context: a.context}
	if a.stream != "both" {
		q.Stream = a.stream
	}
	if a.ranged {
		q.Range = &artifact.Range{Stream: a.rangeStream, Start: int64(a.start), End: int64(a.end)}
	}
	return q
}

// reader returns the identity with which artifacts are read: the principal, and the served repositories that it may use.
func (t *QueryOutput) reader(c Caller) artifact.Reader {
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
		return &Error{Code: CodeNotFound, Message: "Artifact " + safe.Line(handle, maxShown) + " not found", Details: details}
	case errors.Is(err, artifact.ErrExpired):
		return &Error{Code: CodeExpired, Message: clean(err.Error()), Details: details}
	case errors.Is(err, artifact.ErrCorrupt):
		return &Error{Code: CodeCorrupt, Message: clean(err.Error()), Details: details}
	}
	return err
}
