package mcp

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"corral/internal/strictjson"
	"corral/store/index"
)

// CtxSearch is the tool ctx_search: it searches the knowledge base. Its replies are worded as in context-mode.
type CtxSearch struct{ *Ctx }

// Limits of a search.
const (
	maxCtxQueries = 100
	maxCtxQuery   = 4096 // characters
	maxCtxHits    = 50   // of one query
	maxCtxSource  = 512  // characters
)

// ctxSearchArgs are the arguments of ctx_search.
type ctxSearchArgs struct {
	repo, query, source string
	queries             []string
	limit               int
	class, sort         string
}

func newCtxSearchArgs() *ctxSearchArgs { return &ctxSearchArgs{limit: 3, sort: sortRelevance} }

const (
	sortRelevance = "relevance"
	sortNewest    = "newest"
)

func (a *ctxSearchArgs) fields() []field {
	return []field{
		queriesField(&a.queries),
		{name: "query", into: &a.query, max: maxCtxQuery, about: "one query, in place of queries"},
		{name: "limit", into: &a.limit, min: 1, max: maxCtxHits, coerce: true, about: "sections of each query at most"},
		{
			name: "source", into: &a.source, max: maxCtxSource,
			about: "search sources only whose name has this in it, as it is: execute:shell, or what ctx_index named",
		},
		{name: "contentType", into: &a.class, enum: []string{"code", "prose"}, about: "search sections of this kind only; default: both"},
		{
			// time and timeline are synonyms of newest: callers of context-mode send timeline.
			name: "sort", into: &a.sort, enum: []string{sortRelevance, sortNewest, "time", "timeline"},
			about: "relevance: the best first; newest (or time, timeline): of those that match, the last indexed first",
		},
		repoField(&a.repo),
	}
}

func queriesField(into *[]string) field {
	return field{
		name: "queries", into: into, items: maxCtxQueries, max: maxCtxQuery, coerce: true,
		about: "what to look for: some words each, in any order. Ask all you want to know in one call",
	}
}

const ctxSearchDescription = `Search what earlier calls have indexed: long output of ctx_execute, ctx_execute_file and ctx_batch_execute, and what ctx_index was given. Nothing is run.

Each query gets its best sections, whole up to 1,500 characters, else the parts around what matched. Words are found in other forms (connect, connection), parts of identifiers and misspelled words as well: the reply says what was searched for instead. Use words of the output itself, such as those listed under "Searchable terms".

Every run is a source of its own, named execute:shell#7 for example; source "execute:shell" searches all runs of that kind. What is indexed lasts for two weeks, unless the operator says otherwise; ctx_purge removes it.`

// Name implements Tool.
func (t *CtxSearch) Name() string { return "ctx_search" }

// Definition implements Tool.
func (t *CtxSearch) Definition() Definition {
	return Definition{
		Name: t.Name(), Title: "Search what was indexed", Description: ctxSearchDescription,
		Input: openSchema(newCtxSearchArgs().fields()),
		Output: replySchema(properties{
			{"text", text("the same as the text block")},
			{"results", answersSchema()},
			{"indexing", integer("outputs that are being indexed still, and cannot be found yet")},
			{"message", text("of an error: what is wrong")},
		}),
		ReadOnly: true, Idempotent: true,
	}
}

// A searchReply is the structuredContent of ctx_search.
type searchReply struct {
	Text     string         `json:"text"`
	Results  []*queryAnswer `json:"results"`
	Indexing int            `json:"indexing,omitempty"`
}

// emptyBase is the reply to a search of an empty knowledge base.
const emptyBase = "Knowledge base is empty — nothing has been indexed yet.\n\n" +
	"ctx_search finds what earlier calls have indexed: ctx_batch_execute indexes all output, ctx_execute and ctx_execute_file " +
	"what is long, and ctx_index a text or a file."

// Call implements Tool. The reply is text, with the same facts as structuredContent.
func (t *CtxSearch) Call(ctx context.Context, arguments json.RawMessage) (ToolResult, error) {
	a := newCtxSearchArgs()
	if err := decodeLenient(arguments, a.fields()); err != nil {
		return ctxFailed(err)
	}
	queries := nonBlank(slices.Concat(unpackList(arguments, a.queries), []string{a.query}))
	if len(queries) == 0 {
		return ctxFailed(&Error{Code: CodeInvalid, Message: "Error: provide query or queries."})
	}
	base, err := t.searchable(CallerOf(ctx), a.repo)
	if err != nil {
		return ctxFailed(err)
	}
	t.waitIndexed(ctx, base)
	reply := &searchReply{Indexing: t.indexing(base)}
	q := index.Query{Limit: a.limit, Source: a.source, Class: a.class, Newest: a.sort != sortRelevance}
	var empty bool
	if reply.Results, empty, err = t.searchAll(ctx, base, queries, q); err != nil {
		return ctxFailed(err)
	}
	if empty && reply.Indexing == 0 {
		return ctxFailed(&Error{Code: CodeNotFound, Message: emptyBase})
	}
	reply.Text = answersText(reply.Results) + indexingText(reply.Indexing)
	return texts(reply, reply.Text, false), nil
}

// searchable returns the knowledge base of a call, or an error if indexing is disabled.
func (x *Ctx) searchable(c Caller, repo string) (index.Base, error) {
	repo, err := x.repo(c, repo)
	if err != nil {
		return index.Base{}, err
	}
	if x.Knowledge == nil {
		return index.Base{}, &Error{Code: CodeUnsupported, Message: "indexing is disabled: the configuration sets index.enabled to false"}
	}
	return x.base(c, repo), nil
}

// searchAll answers queries one after the other. empty reports that the knowledge base is empty.
func (x *Ctx) searchAll(ctx context.Context, b index.Base, queries []string, q index.Query) (answers []*queryAnswer, empty bool, err error) {
	for _, text := range queries {
		q.Text = text
		found, err := x.Knowledge.Search(ctx, b, q)
		if err != nil {
			return nil, false, indexError(ctx, err)
		}
		empty = empty || found.Empty
		answers = append(answers, newQueryAnswer(text, found))
	}
	return answers, empty, nil
}

// indexError converts an error of the index.
func indexError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &Error{Code: CodeUnavailable, Message: "the index cannot be used: " + clean(err.Error())}
}

// nonBlank returns the queries that are not blank.
func nonBlank(queries []string) []string {
	return slices.DeleteFunc(slices.Clone(queries), func(q string) bool { return strings.TrimSpace(q) == "" })
}

// unpackList returns the list in queries that was sent as a string of JSON, as some hosts do. It returns queries if it was
// not.
func unpackList(arguments json.RawMessage, queries []string) []string {
	if len(queries) != 1 {
		return queries
	}
	raw := member(arguments, "queries")
	if kind(raw) != "a string" {
		return queries
	}
	inner := json.RawMessage(strings.TrimSpace(strictjson.Unquote(raw)))
	if kind(inner) != "an array" || !json.Valid(inner) {
		return queries
	}
	var list []string
	if f := queriesField(&list); f.decode("queries", inner) != nil {
		return queries
	}
	return list
}

// indexing returns how many outputs are being indexed or queued for a knowledge base.
func (x *Ctx) indexing(b index.Base) int {
	x.begin()
	x.pending.mu.Lock()
	defer x.pending.mu.Unlock()
	return len(x.pending.all[b])
}

func indexingText(n int) string {
	if n == 0 {
		return ""
	}
	return "\n\n_(" + counted(n, "output") + " still being indexed: what is in it cannot be found yet)_"
}
