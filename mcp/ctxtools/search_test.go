package ctxtools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/internal/test/mcptest"
	"corral/mcp/tool"
	"corral/store/index"
)

// A cannedIndex index returns prepared results and records its queries.
type cannedIndex struct {
	found   map[string]*index.Found // by query text; without an entry nothing is found
	stats   index.Stats
	err     error
	queries []index.Query
	bases   []index.Base
}

func (k *cannedIndex) Search(_ context.Context, b index.Base, q index.Query) (*index.Found, error) {
	k.queries, k.bases = append(k.queries, q), append(k.bases, b)
	if f := k.found[q.Text]; f != nil {
		return f, k.err
	}
	return &index.Found{}, k.err
}

func (k *cannedIndex) Add(_ context.Context, _ index.Base, s index.Source, r io.Reader) (index.Added, error) {
	text, _ := io.ReadAll(r)
	return index.Added{Name: s.Label, Sections: 1, Bytes: int64(len(text))}, k.err
}

func (k *cannedIndex) Has(context.Context, index.Base, string, string) (bool, error) {
	return false, k.err
}

func (k *cannedIndex) Stats(context.Context, index.Base) (index.Stats, error) { return k.stats, k.err }

func (k *cannedIndex) Purge(_ context.Context, b index.Base) (index.Stats, error) {
	k.bases = append(k.bases, b)
	return k.stats, k.err
}

// cannedHit returns a hit from 2026-11-21, 10:30 in a zone other than UTC.
func cannedHit(source, title, text string) index.Hit {
	return index.Hit{
		Source: source, Title: title, Text: text, LineStart: 21, LineEnd: 40,
		Time: time.Date(2026, 11, 21, 12, 30, 15, 999, time.FixedZone("", 2*60*60)),
	}
}

func cannedCtx(t *testing.T, k *cannedIndex) *Suite {
	t.Helper()
	x := New(Settings{Knowledge: k, Repos: []string{"app", "other"}})
	t.Cleanup(x.Close)
	return x
}

// TestCtxSearchTexts: the texts of the contract.
func TestCtxSearchTexts(t *testing.T) {
	k := &cannedIndex{found: map[string]*index.Found{
		"refused": {Hits: []index.Hit{cannedHit("execute:shell#2", "worker 7", "dial: connection refused"), cannedHit("notes", "", "refused\nagain")}, Matched: 5},
		"typo":    {Hits: []index.Hit{cannedHit("a", "t", "x")}, Corrected: map[string]string{"tpyo": "typo", "b": "c"}, Matched: 1},
		"common":  {Hits: []index.Hit{cannedHit("a", "t", "x")}, Cut: true},
		"empty":   {Empty: true},
		"odd":     {Hits: []index.Hit{cannedHit("a\nb", "## t\r\nu", "x")}},
	}}
	const refused = "## refused\n\n--- [execute:shell#2 | 2026-11-21T10:30:15Z] ---\n### worker 7\n\ndial: connection refused\n\n" +
		"--- [notes | 2026-11-21T10:30:15Z] ---\n### lines 21-40\n\nrefused\nagain"
	for _, tt := range []struct {
		name, arguments, want string
		isError               bool
	}{
		{"hits", `{"queries":["refused"]}`, refused, false},
		{"a string", `{"queries":"refused"}`, refused, false},
		{"query", `{"query":"refused"}`, refused, false},
		{"a list in a string", `{"queries":"[\"refused\"]"}`, refused, false},
		{"none", `{"queries":["nowhere"]}`, "## nowhere\nNo results found.", false},
		{"several", `{"queries":["nowhere","refused"]}`, "## nowhere\nNo results found.\n\n---\n\n" + refused, false},
		{"both", `{"queries":["nowhere"],"query":"refused"}`, "## nowhere\nNo results found.\n\n---\n\n" + refused, false},
		{"blank ones", `{"queries":[" ","nowhere",""]}`, "## nowhere\nNo results found.", false},
		{"unknown keys", `{"queries":["nowhere"],"project":"x","source":null}`, "## nowhere\nNo results found.", false},
		{"corrected", `{"queries":["typo"]}`, "## typo\n\n--- [a | 2026-11-21T10:30:15Z] ---\n### t\n\nx\n\n_(searched for \"c\" for \"b\", \"typo\" for \"tpyo\")_", false},
		{"cut off", `{"queries":["common"]}`, "## common\n\n--- [a | 2026-11-21T10:30:15Z] ---\n### t\n\nx\n\n_(a word of this query is in more sections than are searched: add a rarer word, or a source)_", false},
		{"on one line", `{"queries":["odd"]}`, "## odd\n\n--- [a b | 2026-11-21T10:30:15Z] ---\n### ## t  u\n\nx", false},
		{"lines in a query", `{"queries":["a\nb"]}`, "## a b\nNo results found.", false},
		{"empty base", `{"queries":["empty"]}`, emptyBase, true},
		{"no arguments", ``, "Error: provide query or queries.", true},
		{"no query", `{}`, "Error: provide query or queries.", true},
		{"no queries", `{"queries":[]}`, "Error: provide query or queries.", true},
		{"a blank query", `{"query":"  "}`, "Error: provide query or queries.", true},
		{"limit 0", `{"query":"x","limit":0}`, "limit: 0 is out of range: 1 to 50", true},
		{"limit 51", `{"query":"x","limit":51}`, "limit: 51 is out of range: 1 to 50", true},
		{"a number", `{"queries":7}`, "queries: must be an array of strings, got a number", true},
		{"numbers", `{"queries":[7]}`, "queries[0]: must be a string, got a number", true},
		{"kind", `{"query":"x","contentType":"poem"}`, `contentType: "poem" is not one of: code, prose`, true},
		{"order", `{"query":"x","sort":"size"}`, `sort: "size" is not one of: relevance, newest, time, timeline`, true},
		{"repository", `{"query":"x","repoId":"nope"}`, "Repository nope not found", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Search{cannedCtx(t, k)}, tt.arguments)
			if r.Text != tt.want || r.IsError != tt.isError || !r.Whole {
				t.Errorf("got  %q, %t\nwant %q", r.Text, r.IsError, tt.want)
			}
			if !tt.isError && v["text"] != tt.want || tt.isError && v["message"] != tt.want {
				t.Errorf("structured: %v", v)
			}
		})
	}
}

// TestCtxSearchQuery: every argument reaches the index, and nothing else does.
func TestCtxSearchQuery(t *testing.T) {
	for _, tt := range []struct {
		arguments string
		want      index.Query
		repo      string
	}{
		{`{"query":"a b"}`, index.Query{Text: "a b", Limit: 3}, "app"},
		{
			`{"queries":["a"],"limit":"50","source":"execute:%_*","contentType":"code","sort":"relevance","repoId":"other"}`,
			index.Query{Text: "a", Limit: 50, Source: "execute:%_*", Class: "code"},
			"other",
		},
		{`{"query":"a","sort":"newest","limit":1}`, index.Query{Text: "a", Limit: 1, Newest: true}, "app"},
		{`{"query":"a","sort":"time"}`, index.Query{Text: "a", Limit: 3, Newest: true}, "app"},
		{`{"query":"a","sort":"timeline","contentType":"prose"}`, index.Query{Text: "a", Limit: 3, Newest: true, Class: "prose"}, "app"},
	} {
		k := &cannedIndex{}
		mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Search{cannedCtx(t, k)}, tt.arguments)
		if len(k.queries) != 1 || !reflect.DeepEqual(k.queries[0], tt.want) || k.bases[0] != (index.Base{Repo: tt.repo, Principal: "user:ada"}) {
			t.Errorf("%s: %+v of %v", tt.arguments, k.queries, k.bases)
		}
	}
}

// TestCtxSearchFacts: structuredContent has the facts of the text.
func TestCtxSearchFacts(t *testing.T) {
	h := cannedHit("execute:shell#2", "t", "one\ntwo")
	h.Line, h.LineNumber, h.Stream, h.Artifact = "two", 22, "stdout", "runtime-app-1"
	k := &cannedIndex{found: map[string]*index.Found{"q": {Hits: []index.Hit{h}, Matched: 9, Cut: true, Corrected: map[string]string{"x": "y"}}}}
	v, _ := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Search{cannedCtx(t, k)}, `{"query":"q"}`)
	var want any
	if err := json.Unmarshal([]byte(`[{"query":"q","matched":9,"cut":true,"corrected":{"x":"y"},"hits":[{"source":"execute:shell#2",
		"time":"2026-11-21T10:30:15Z","title":"t","content":"one\ntwo","lineStart":21,"lineEnd":40,"line":"two","lineNumber":22,
		"stream":"stdout","artifactHandle":"runtime-app-1"}]}]`), &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(v["results"], want) {
		t.Errorf("got %v\nwant %v", v["results"], want)
	}
}

// TestCtxNoIndex: without an index the tools say so, and errors of the index are reported.
func TestCtxNoIndex(t *testing.T) {
	broken := &cannedIndex{err: errors.New("no space left on device")}
	for _, tt := range []struct {
		name, code, want string
		x                *Suite
	}{
		{"none", tool.CodeUnsupported, "indexing is disabled: the configuration sets index.enabled to false", New(Settings{Repos: []string{"app"}})},
		{"broken", tool.CodeUnavailable, "the index cannot be used: no space left on device", cannedCtx(t, broken)},
	} {
		for _, call := range []struct {
			tool      tool.Tool
			arguments string
		}{
			{&Search{tt.x}, `{"query":"x"}`},
			{&Index{tt.x}, `{"content":"x"}`},
			{&Stats{tt.x}, `{}`},
			{&Purge{tt.x}, `{"confirm":true}`},
		} {
			v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), call.tool, call.arguments)
			if v["code"] != tt.code || r.Text != tt.want || !r.IsError {
				t.Errorf("%s, %s: %v", tt.name, call.tool.Name(), v)
			}
		}
	}
}

// TestCtxSearchWaits: a search waits for indexing for a limited time, and then reports what is still being indexed.
func TestCtxSearchWaits(t *testing.T) {
	k := &cannedIndex{found: map[string]*index.Found{"x": {Empty: true}}}
	x := cannedCtx(t, k)
	busy, ended := make(chan struct{}), make(chan struct{})
	base := index.Base{Repo: "app", Principal: "user:ada"}
	if _, err := x.pending.Run(t.Context(), base, func(context.Context) { <-busy; close(ended) }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(mcptest.AsUser(t.Context()), time.Millisecond)
	defer cancel()
	x.waitIndexed(ctx, base) // ends with ctx, as it would after its timeout
	if n := x.indexing(base); n != 1 {
		t.Errorf("%d being indexed", n)
	}
	if n := x.indexing(index.Base{Repo: "app", Principal: "user:bob"}); n != 0 {
		t.Errorf("another principal: %d being indexed", n)
	}
	if got := indexingText(1); got != "\n\n_(1 output still being indexed: what is in it cannot be found yet)_" {
		t.Errorf("%q", got)
	}
	go func() { close(busy) }()
	_, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Search{x}, `{"query":"x"}`)
	select {
	case <-ended:
	default:
		t.Error("the search did not wait")
	}
	if r.Text != emptyBase {
		t.Errorf("%q", r.Text)
	}
}

// TestCtxSearchIsBounded: a reply fits into a message and says what it omits.
func TestCtxSearchIsBounded(t *testing.T) {
	f := &index.Found{}
	for range 50 {
		f.Hits = append(f.Hits, cannedHit("s", "t", strings.Repeat("\x01", 1500)))
	}
	k := &cannedIndex{found: map[string]*index.Found{"x": f}}
	queries := strings.TrimSuffix(strings.Repeat(`"x",`, 100), ",")
	v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Search{cannedCtx(t, k)}, `{"limit":50,"queries":[`+queries+`]}`)
	results, _ := v["results"].([]any)
	if len(r.Text) > maxAnswers+100<<10 || len(results) != 100 {
		t.Fatalf("%d bytes, %d answers", len(r.Text), len(results))
	}
	omitted, hits := 0, 0
	for _, one := range results {
		m, _ := one.(map[string]any)
		n, _ := m["omitted"].(float64)
		omitted += int(n)
		list, _ := m["hits"].([]any)
		hits += len(list)
	}
	if hits+omitted != 50*100 || omitted == 0 || hits < 500 {
		t.Errorf("%d sections and %d left out", hits, omitted)
	}
	if want := "_(50 sections left out: the reply is full. Send fewer queries at once)_"; !strings.HasSuffix(r.Text, want) {
		t.Errorf("the end is %q", r.Text[len(r.Text)-100:])
	}
	v, r = mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Search{cannedCtx(t, k)}, `{"queries":[`+queries+`,"x"]}`)
	if v["code"] != tool.CodeInvalid || r.Text != "queries: must have at most 100 entries" {
		t.Errorf("101 queries: %v", v)
	}
}

// TestRecall checks that a search for several repositories has the hits of all that the caller may use, those with the most words of the
// query first, and that a named repository is searched alone.
func TestRecall(t *testing.T) {
	hit := func(source, text string, marks ...[2]int) index.Hit {
		return index.Hit{Source: source, Text: text, Marks: marks}
	}
	k := &cannedIndex{found: map[string]*index.Found{"red fox": {Matched: 2, Hits: []index.Hit{
		hit("one", "red red", [2]int{0, 3}, [2]int{4, 7}), hit("two", "red Fox", [2]int{0, 3}, [2]int{4, 7}),
	}}}}
	x, _ := newCtx(t, mcptest.NewFakeRunner())
	x.Knowledge = k
	for n := range 20 {
		x.Repos = append(x.Repos, fmt.Sprint("more", n))
	}
	for _, tt := range []struct {
		named    string
		may      []string
		searched []string
		sources  string
		left     int
	}{
		{"", []string{"app", "other"}, []string{"app", "other"}, "two two one", 0},
		{"other", []string{"app", "other"}, []string{"other"}, "one two", 0},
		{"", []string{"other"}, []string{"other"}, "one two", 0},
		{"", nil, x.Repos[:maxRecalled], "two two two", 6},
	} {
		k.bases = nil
		c := tool.CallerOf(mcptest.AsUser(t.Context()))
		c.Repos = tt.may
		found, err := x.Recall(t.Context(), c, tt.named, index.Query{Text: "red fox", Limit: 3})
		if err != nil {
			t.Fatal(err)
		}
		var searched, sources []string
		for _, b := range k.bases {
			searched = append(searched, b.Repo)
		}
		for _, h := range found.Hits {
			sources = append(sources, h.Source)
		}
		if !slices.Equal(searched, tt.searched) || strings.Join(sources, " ") != tt.sources || found.Left != tt.left || found.Matched != 2*len(searched) {
			t.Errorf("%q of %q: searched %q, %+v", tt.named, tt.may, searched, found)
		}
	}
	if _, err := x.Recall(t.Context(), tool.Caller{Repos: []string{}}, "", index.Query{Text: "red fox"}); err == nil {
		t.Error("a caller without repositories searched some")
	}
}
