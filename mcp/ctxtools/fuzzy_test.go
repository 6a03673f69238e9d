package ctxtools

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"corral/internal/test/mcptest"
	"corral/mcp/execute"
	"corral/mcp/tool"
	"corral/store/artifact"
	"corral/store/index"
)

const fuzzyStderr = "warning\nthe quaggas are connecting\n"

// fuzzyStdout returns 400 lines; 123 and 301 report errors.
func fuzzyStdout() string {
	var b strings.Builder
	for n := range 400 {
		switch n + 1 {
		case 123:
			b.WriteString("dial tcp: connection refused by the quagga\n")
		case 301:
			b.WriteString("handler: connectionRefusedError in module_77\n")
		default:
			fmt.Fprintf(&b, "worker %d said that all was well at step %d\n", n%7, n+1)
		}
	}
	return b.String()
}

// TestFuzzy: other word forms, misspellings and parts of words are found, with their line numbers.
func TestFuzzy(t *testing.T) {
	x, s := (&scriptRunner{}).ctx(t)
	handle := mcptest.StoreOutput(t, s, fuzzyStdout(), fuzzyStderr)
	tool := &execute.QueryOutput{Artifacts: s, Repos: []string{"app"}, Index: x.Fuzzy()}
	for _, tt := range []struct {
		name, arguments string
		want            []string
		match           string
	}{
		{"as it is", `"queryTerms":["quagga"],"stream":"stdout"`, []string{"stdout 123"}, "matched"},
		{"another form", `"queryTerms":["refusing connections"],"stream":"stdout","maxExcerpts":1`, []string{"stdout 123"}, "matched"},
		{"misspelled", `"queryTerms":["qagga"],"stream":"stdout"`, []string{"stdout 123"}, "matched"},
		{"a part", `"queryTerms":["module_77"],"maxExcerpts":1`, []string{"stdout 301"}, "matched"},
		{"both streams", `"queryTerms":["quagga"]`, []string{"stdout 123", "stderr 2"}, "matched"},
		{"one stream", `"queryTerms":["quagga"],"stream":"stderr"`, []string{"stderr 2"}, "matched"},
		{"two terms", `"queryTerms":["module_77","qagga"],"stream":"stdout","maxExcerpts":2`, []string{"stdout 123", "stdout 301"}, "matched"},
		{"one excerpt of two terms", `"queryTerms":["module_77","quagga"],"stream":"stdout","maxExcerpts":1`, []string{"stdout 301"}, "matched"},
		{"nothing", `"queryTerms":["xylophone"],"maxExcerpts":2`, []string{"stdout 1 fallback"}, "noMatchFallback"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), tool, `{"artifactHandle":"`+handle+`","match":"fuzzy","contextLines":0,`+tt.arguments+`}`)
			if got := excerptLines(v); !slices.Equal(got, tt.want) || v["matchStatus"] != tt.match || r.IsError {
				t.Errorf("%q, want %q: %v", got, tt.want, v)
			}
		})
	}
	v, _ := mcptest.CallTool(t, mcptest.AsUser(t.Context()), tool, `{"artifactHandle":"`+handle+`","match":"fuzzy","contextLines":1,"queryTerms":["qagga"],"stream":"stdout"}`)
	want := map[string]any{
		"artifactHandle": handle, "matchStatus": "matched", "totalLines": 400.0, "searchedStreams": []any{"stdout"}, "totalBytes": v["totalBytes"],
		"excerpts": []any{map[string]any{
			"lineStart": 122.0, "lineEnd": 124.0, "source": "stdout",
			"content": "worker 2 said that all was well at step 122\ndial tcp: connection refused by the quagga\nworker 4 said that all was well at step 124",
		}},
	}
	if !reflect.DeepEqual(v, want) {
		t.Errorf("got  %v\nwant %v", v, want)
	}
	stats, err := x.Knowledge.Stats(t.Context(), testBase)
	if err != nil || stats.Sources != 2 {
		t.Errorf("%+v, %v; want it indexed once", stats, err)
	}
}

// excerptLines returns where the excerpts of a reply begin.
func excerptLines(v map[string]any) []string {
	var out []string
	list, _ := v["excerpts"].([]any)
	for _, one := range list {
		m, _ := one.(map[string]any)
		s := fmt.Sprint(m["source"], " ", m["lineStart"])
		if m["fallback"] == true {
			s += " fallback"
		}
		out = append(out, s)
	}
	return out
}

// TestFuzzyLineNumbersAfterGap: in output that was too long to be stored whole, lines keep their original numbers.
func TestFuzzyLineNumbersAfterGap(t *testing.T) {
	x, _ := (&scriptRunner{}).ctx(t)
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s, err := artifact.Open(dir, artifact.Options{StreamBytes: 16 << 10})
	dir.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	x.Outputs = s
	var b strings.Builder
	for n := range 20_000 {
		fmt.Fprintf(&b, "step %d\n", n+1)
	}
	b.WriteString("the quagga died\n")
	handle := mcptest.StoreOutput(t, s, b.String(), "")
	v, _ := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &execute.QueryOutput{Artifacts: s, Repos: []string{"app"}, Index: x.Fuzzy()},
		`{"artifactHandle":"`+handle+`","match":"fuzzy","contextLines":0,"queryTerms":["quaggas"],"maxExcerpts":1}`)
	if got := excerptLines(v); !slices.Equal(got, []string{"stdout 20001"}) {
		t.Errorf("%v", v)
	}
}

// TestFuzzyErrors: queries that are refused; a caller cannot search another's output.
func TestFuzzyErrors(t *testing.T) {
	x, s := (&scriptRunner{}).ctx(t)
	handle := mcptest.StoreOutput(t, s, fuzzyStdout(), "")
	full := &cannedIndex{err: errors.New("no space left on device")}
	for _, tt := range []struct {
		name, arguments, code, want string
		x                           *Suite
		principal                   string
	}{
		{"no index", `"queryTerms":["x"]`, tool.CodeUnsupported, "full-text index", nil, "user:ada"},
		{"an index switched off", `"queryTerms":["x"]`, tool.CodeUnsupported, "full-text index", &Suite{}, "user:ada"},
		{"lines", `"queryTerms":["x"],"lineRange":{"startLine":1,"endLine":2}`, tool.CodeInvalid, "match: \"fuzzy\" searches whole streams", x, "user:ada"},
		{"no terms", `"queryTerms":[]`, tool.CodeInvalid, "queryTerms or lineRange is required", x, "user:ada"},
		{"another's", `"queryTerms":["quagga"]`, tool.CodeNotFound, "not found", x, "token:bob"},
		{"a full disk", `"queryTerms":["quagga"]`, tool.CodeUnavailable, "no space left on device", New(Settings{Knowledge: full, Outputs: s}), "user:ada"},
	} {
		ctx := tool.WithCaller(t.Context(), tool.Caller{Principal: tt.principal, Session: "s", Progress: func(float64, string) {}})
		v, r := mcptest.CallTool(t, ctx, &execute.QueryOutput{Artifacts: s, Repos: []string{"app"}, Index: tt.x.Fuzzy()}, `{"artifactHandle":"`+handle+`","match":"fuzzy",`+tt.arguments+`}`)
		if v["code"] != tt.code || !strings.Contains(fmt.Sprint(v["message"]), tt.want) || !r.IsError {
			t.Errorf("%s: %v", tt.name, v)
		}
	}
}

// TestConcurrentFuzzyIndexesOnce: two concurrent queries index the output once.
func TestConcurrentFuzzyIndexesOnce(t *testing.T) {
	x, s := (&scriptRunner{}).ctx(t)
	handle := mcptest.StoreOutput(t, s, fuzzyStdout(), "")
	tool := &execute.QueryOutput{Artifacts: s, Repos: []string{"app"}, Index: x.Fuzzy()}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			_, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), tool, `{"artifactHandle":"`+handle+`","match":"fuzzy","queryTerms":["quagga"]}`)
			if r.IsError {
				t.Errorf("%v", r.Structured)
			}
		})
	}
	all.Wait()
	if stats, err := x.Knowledge.Stats(t.Context(), testBase); err != nil || stats.Sources != 1 {
		t.Errorf("%+v, %v", stats, err)
	}
}

// TestSourcesOf: the label of an artifact in the index.
func TestSourcesOf(t *testing.T) {
	m := &artifact.Manifest{ArtifactID: "h", Runtime: "node", StdoutBytes: 3}
	if got := SourcesOf(m); len(got) != 1 || got[0] != (index.Source{Label: "execute:javascript", Artifact: "h", Stream: "stdout"}) {
		t.Errorf("%+v", got)
	}
	for runtime, want := range map[string]string{"shell": "execute:shell", "kotlin": "execute:kotlin", "": "execute"} {
		if got := languageLabel(runtime); got != want {
			t.Errorf("%q: %q", runtime, got)
		}
	}
}
