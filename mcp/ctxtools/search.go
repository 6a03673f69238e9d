package ctxtools

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"corral/internal/strictjson"
	"corral/mcp/tool"
	"corral/store/index"
)

// Search is the tool ctx_search: it searches the knowledge base. Clients compare the words of its replies.
type Search struct{ *Suite }

// searchArgs are the arguments of ctx_search.
type searchArgs struct {
	queriesArg
	Query  string `arg:"query,max=4096"`
	Limit  int    `arg:"limit,min=1,max=50" default:"3" about:"per query"`
	Source string `arg:"source,max=512" about:"only sources whose name contains this"`
	Class  string `arg:"contentType" enum:"code,prose"`
	// Sort has time and timeline as synonyms of newest, which callers send.
	Sort string `arg:"sort" enum:"relevance,newest,time,timeline" default:"relevance"`
	repoArg
}

// A queriesArg is the argument queries.
type queriesArg struct {
	Queries []string `arg:"queries,items=100,max=4096" about:"a few words each"`
}

// sortRelevance is the default of searchArgs.Sort; all others mean the newest first.
const sortRelevance = "relevance"

const searchDescription = `Search what was indexed: long output of ctx_execute, ctx_execute_file and ctx_batch_execute, and ctx_index. Nothing is run. Each query gets its best sections. Other forms, parts of identifiers and misspellings are found too. Use words of the output, such as its "Searchable terms". Source "execute:shell" searches all runs of that kind, execute:shell#7 one.`

// Name implements Tool.
func (t *Search) Name() string { return "ctx_search" }

// Definition implements Tool.
func (t *Search) Definition() tool.Definition {
	return tool.Definition{
		Name: t.Name(), Title: "Search what was indexed", Description: searchDescription,
		Input: tool.InputSchema(searchArgs{}, tool.Lenient, nil), Output: tool.ReplySchema[searchReply](), TextOnly: true,
		ReadOnly: true, Idempotent: true,
	}
}

// A searchReply is the structuredContent of ctx_search.
type searchReply struct {
	said
	Results  []*answer `json:"results"`
	Indexing int       `json:"indexing,omitempty"` // number of outputs that are still being indexed and cannot be found yet
}

// emptyBase is the reply to a search of an empty knowledge base.
const emptyBase = "Knowledge base is empty — nothing has been indexed yet.\n\n" +
	"ctx_search finds what earlier calls have indexed: ctx_batch_execute indexes all output, ctx_execute and ctx_execute_file " +
	"what is long, and ctx_index a text or a file."

// Call implements Tool. The reply is text, with the same facts as structuredContent.
func (t *Search) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	a := &searchArgs{}
	if err := tool.Decode(arguments, a, tool.Lenient); err != nil {
		return failed(err)
	}
	queries := nonBlank(slices.Concat(unpackList(arguments, a.Queries), []string{a.Query}))
	if len(queries) == 0 {
		return failed(&tool.Error{Code: tool.CodeInvalid, Message: "Error: provide query or queries."})
	}
	base, err := t.searchable(tool.CallerOf(ctx), a.Repo)
	if err != nil {
		return failed(err)
	}
	t.waitIndexed(ctx, base)
	reply := &searchReply{Indexing: t.indexing(base)}
	q := index.Query{Limit: a.Limit, Source: a.Source, Class: a.Class, Newest: a.Sort != sortRelevance}
	var empty bool
	if reply.Results, empty, err = t.searchAll(ctx, base, queries, q); err != nil {
		return failed(err)
	}
	if empty && reply.Indexing == 0 {
		return failed(&tool.Error{Code: tool.CodeNotFound, Message: emptyBase})
	}
	reply.Text = answersText(reply.Results) + indexingText(reply.Indexing)
	return tool.TextResult(reply, reply.Text, false), nil
}

// searchable returns the knowledge base of a call, or an error if indexing is disabled.
func (x *Suite) searchable(c tool.Caller, repo string) (index.Base, error) {
	repo, err := x.RepoOf(c, repo)
	if err != nil {
		return index.Base{}, err
	}
	if x.Knowledge == nil {
		return index.Base{}, &tool.Error{
			Code:    tool.CodeUnsupported,
			Message: "indexing is disabled: the configuration sets index.enabled to false",
		}
	}
	return x.base(c, repo), nil
}

// searchAll answers queries one after the other. empty reports that the knowledge base is empty.
func (x *Suite) searchAll(ctx context.Context, b index.Base, queries []string, q index.Query,
) (answers []*answer, empty bool, err error) {
	for _, text := range queries {
		q.Text = text
		found, err := x.Knowledge.Search(ctx, b, q)
		if err != nil {
			return nil, false, indexError(ctx, err)
		}
		empty = empty || found.Empty
		answers = append(answers, newAnswer(text, found))
	}
	return answers, empty, nil
}

// indexError converts an error of the index.
func indexError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &tool.Error{Code: tool.CodeUnavailable, Message: "the index cannot be used: " + tool.Clean(err.Error())}
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
	if strictjson.Kind(raw) != "a string" {
		return queries
	}
	inner := json.RawMessage(strings.TrimSpace(strictjson.Unquote(raw)))
	if strictjson.Kind(inner) != "an array" || !json.Valid(inner) {
		return queries
	}
	var unpacked queriesArg
	if tool.Decode(strictjson.Encode(map[string]json.RawMessage{"queries": inner}), &unpacked, tool.Lenient) != nil {
		return queries
	}
	return unpacked.Queries
}

// indexing returns how many outputs are being indexed or queued for a knowledge base.
func (x *Suite) indexing(b index.Base) int {
	return x.pending.Count(b)
}

func indexingText(n int) string {
	if n == 0 {
		return ""
	}
	return "\n\n_(" + Counted(n, "output") + " still being indexed: what is in it cannot be found yet)_"
}

// member returns the value of a key in a valid JSON object, nil if it is absent.
func member(object json.RawMessage, name string) json.RawMessage {
	for _, e := range strictjson.Entries(object) {
		if e.Key == name {
			return e.Value
		}
	}
	return nil
}
