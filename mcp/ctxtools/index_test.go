package ctxtools

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"corral/internal/test/mcptest"
	"corral/job"
	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/artifact"
	"corral/store/index"
)

// TestCtxIndex: a text can be found under its name, and is replaced by the next one of that name.
func TestCtxIndex(t *testing.T) {
	x, _ := (&scriptRunner{}).ctx(t)
	v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Index{x}, `{"content":"# Zebras\n\nThey are striped.\n\n# Quaggas\n\nThey are gone.\n","source":"animals"}`)
	if !strings.HasPrefix(r.Text, "Indexed 2 sections from \"animals\" into knowledge base (7 lines, 0.1KB).\n") ||
		!strings.HasSuffix(r.Text, "\n\nUse ctx_search(queries: [...], source: \"animals\") to retrieve full content of any section.") || r.IsError {
		t.Errorf("%q", r.Text)
	}
	indexed, _ := v["indexed"].(map[string]any)
	if indexed["source"] != "animals" || indexed["sections"] != 2.0 || v["text"] != r.Text {
		t.Errorf("%v", v)
	}
	search := func(query string) string {
		_, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Search{x}, `{"query":"`+query+`","source":"animals"}`)
		return r.Text
	}
	if got := search("striped"); !strings.Contains(got, "--- [animals | ") || !strings.Contains(got, "They are striped.") || strings.Contains(got, "gone") {
		t.Errorf("%q", got)
	}
	mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Index{x}, `{"content":"# Okapis\n\nThey are shy.\n","source":"animals"}`)
	if got := search("striped"); got != "## striped\nNo results found." {
		t.Errorf("after replacement: %q", got)
	}
	if got := search("shy"); !strings.Contains(got, "They are shy.") {
		t.Errorf("replacement: %q", got)
	}
}

// TestCtxIndexFile: a job reads the file, which is found under its path or the given name.
func TestCtxIndexFile(t *testing.T) {
	long := strings.Repeat("dir/", 100) + "notes.txt"
	m := &scriptRunner{files: map[string]string{"docs/zebra.md": "# Zebras\n\nThey are striped.\n", long: "a quagga\n", "empty": ""}}
	x, _ := m.ctx(t)
	v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Index{x}, `{"path":"docs/zebra.md"}`)
	if !strings.HasPrefix(r.Text, "Indexed 1 section from \"docs/zebra.md\" into knowledge base (3 lines, ") || r.IsError {
		t.Errorf("%q", r.Text)
	}
	if q := m.requests[0]; q.Tool != "ctx_index" || q.Runtime != "shell" || q.Dir != "" || strings.Contains(*q.Code, "zebra") {
		t.Errorf("%+v", q)
	}
	handle, _ := v["artifactHandle"].(string)
	if got := readStored(t, x, handle, artifact.Stdout); got != m.files["docs/zebra.md"] {
		t.Errorf("stored %q", got)
	}
	mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Index{x}, `{"path":"docs/zebra.md","source":"striped things"}`)
	_, r = mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Search{x}, `{"query":"striped","source":"striped things"}`)
	if !strings.Contains(r.Text, "--- [striped things | ") {
		t.Errorf("%q", r.Text)
	}
	v, r = mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Index{x}, `{"path":"`+long+`"}`)
	indexed, _ := v["indexed"].(map[string]any)
	if name := fmt.Sprint(indexed["source"]); len(name) != maxSourceName || !strings.HasSuffix(long, name) {
		t.Errorf("a long path: %q", r.Text)
	}
	if _, r = mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Index{x}, `{"path":"empty"}`); r.IsError || !strings.HasPrefix(r.Text, "Indexed 0 sections from \"empty\"") {
		t.Errorf("empty file: %q", r.Text)
	}
}

// TestCtxIndexErrors: the messages for refused calls.
func TestCtxIndexErrors(t *testing.T) {
	m := &scriptRunner{}
	x, _ := m.ctx(t)
	big, err := json.Marshal(map[string]string{"content": strings.Repeat("x", 4<<20+1)})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ arguments, code, want string }{
		{`{}`, tool.CodeInvalid, "Error: provide content or path."},
		{`{"content":"","path":null}`, tool.CodeInvalid, "Error: provide content or path."},
		{`{"content":"a","path":"b"}`, tool.CodeInvalid, "Error: provide content or path, not both."},
		{`{"content":7}`, tool.CodeInvalid, "content: must be a string, got a number"},
		{string(big), tool.CodeInvalid, "content: has 4194305 bytes, the maximum is 4194304"},
		{`{"content":"x","source":"a\nb"}`, tool.CodeInvalid, `source: "a\nb" does not match ^[^\n]*$`},
		{`{"content":"x","source":"` + strings.Repeat("é", 101) + `"}`, tool.CodeInvalid, "source: has 202 bytes, the maximum is 200"},
		{`{"path":"../secret"}`, tool.CodeInvalid, `path: "../secret" is outside the repository`},
		{`{"path":"a/../../secret"}`, tool.CodeInvalid, `path: "a/../../secret" is outside the repository`},
		{`{"path":"nope"}`, tool.CodeNotFound, "the file cannot be read: realpath: nope: No such file or directory"},
		{`{"content":"x","repoId":"nope"}`, tool.CodeNotFound, "Repository nope not found"},
	} {
		v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Index{x}, tt.arguments)
		if v["code"] != tt.code || r.Text != tt.want || !r.IsError {
			t.Errorf("%.60s: %v %q, want %q", tt.arguments, v["code"], r.Text, tt.want)
		}
	}
}

// TestCtxIndexRefused: a file that no job could read, or whose content was not stored, is not indexed, and the reply says why.
func TestCtxIndexRefused(t *testing.T) {
	for _, tt := range []struct {
		name       string
		change     func(f *mcptest.FakeRunner, x *Suite)
		code, want string
	}{
		{"denied", func(f *mcptest.FakeRunner, _ *Suite) {
			f.Decision.Rule, f.Decision.Reasons = "runtimes", []string{"shell is not allowed"}
		}, tool.CodeDenied, "shell is not allowed"},
		{"slow", func(f *mcptest.FakeRunner, _ *Suite) {
			f.Decision.Spec.Limits.Wall = 400 * time.Millisecond
			f.Result = job.Result{Status: job.Timeout, ExitCode: -1, Signal: 9}
		}, tool.CodeUnavailable, "the file cannot be read: timed out after 400ms"},
		{
			"killed", func(f *mcptest.FakeRunner, _ *Suite) {
				f.Result = job.Result{Status: job.Failure, ExitCode: -1, Signal: 9}
			},
			tool.CodeNotFound, "the file cannot be read: the job failed",
		},
		{"not stored", func(_ *mcptest.FakeRunner, x *Suite) { x.Outputs = nil }, tool.CodeUnavailable, "the file is not indexed: "},
	} {
		f := mcptest.NewFakeRunner()
		f.Stdout = "text"
		x, k := newCtx(t, f)
		tt.change(f, x)
		v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Index{x}, `{"path":"notes.txt"}`)
		if v["code"] != tt.code || !strings.HasPrefix(r.Text, tt.want) || !r.IsError || len(k.added) > 0 {
			t.Errorf("%s: %v %q, want %s %q; %d sources were added", tt.name, v["code"], r.Text, tt.code, tt.want, len(k.added))
		}
	}
}

// TestCtxLabel: a label is within the maximum length, and is cut between characters.
func TestCtxLabel(t *testing.T) {
	for n := range 8 {
		a := &indexArgs{Path: strings.Repeat("x", n) + strings.Repeat("€", 100)}
		if l := a.label(); len(l) > maxSourceName || len(l) < maxSourceName-3 || !utf8.ValidString(l) {
			t.Errorf("%d bytes, %q", len(l), l)
		}
	}
}

// TestCtxStats: the contents of the knowledge base, and the bytes kept out of the context.
func TestCtxStats(t *testing.T) {
	m := &scriptRunner{}
	x, _ := m.ctx(t)
	tools := map[string]tool.Tool{}
	for _, tool := range x.Tools() {
		tools[tool.Name()] = tool
	}
	stats := func() (map[string]any, string) {
		v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), tools["ctx_stats"], `{}`)
		if r.IsError {
			t.Fatal(r.Text)
		}
		return v, regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|\d+\.\dKB on disk`).ReplaceAllString(r.Text, "T")
	}
	if _, got := stats(); got != "Knowledge base of app is empty.\n\nThis session: 0 calls, 0.0KB of output, 0.0KB returned, 0.0KB kept out of the context." {
		t.Errorf("%q", got)
	}
	mcptest.CallTool(t, mcptest.AsUser(t.Context()), tools["ctx_batch_execute"], batchCall(t, "", "big", "lines 1000", "small", "out x"))
	mcptest.CallTool(t, mcptest.AsUser(t.Context()), tools["ctx_index"], `{"content":"abc","source":"notes"}`)
	v, got := stats()
	want := regexp.MustCompile(`^Knowledge base of app: 3 sources, \d+ sections, 4\d\.\dKB of text, T\nIndexed from T to T\n\n` +
		`  - notes: 1 section, 0\.0KB \(T\)\n  - small#1: 1 section, 0\.0KB \(T\)\n  - big#1: \d+ sections, 4\d\.\dKB \(T\)\n\n` +
		`This session: 3 calls, 4\d\.\dKB of output, [0-9.]+KB returned, 4\d\.\dKB kept out of the context\.$`)
	if !want.MatchString(got) {
		t.Errorf("%q", got)
	}
	base, _ := v["base"].(map[string]any)
	session, _ := v["session"].(map[string]any)
	if base["repoId"] != "app" || base["sources"] != 3.0 || session["calls"] != 3.0 {
		t.Errorf("%v", v)
	}
	x.End("user:ada", "s1")
	if _, got = stats(); !strings.HasSuffix(got, "This session: 0 calls, 0.0KB of output, 0.0KB returned, 0.0KB kept out of the context.") {
		t.Errorf("the next session: %q", got)
	}
}

// TestSessionsCountedAreBounded: the number of sessions counted is bounded.
func TestSessionsCountedAreBounded(t *testing.T) {
	var s sums
	for n := range maxSums + 10 {
		s.add(run.Owner{Principal: "p", Session: fmt.Sprint(n)}, 1, 10, 4)
	}
	if len(s.all) > maxSums {
		t.Errorf("%d sessions", len(s.all))
	}
	if got := s.of(run.Owner{Principal: "p", Session: fmt.Sprint(maxSums + 9)}); got != (sessionSums{1, 10, 4, 6}) {
		t.Errorf("%+v", got)
	}
	s.add(run.Owner{Principal: "p", Session: fmt.Sprint(maxSums + 9)}, 1, 0, 100)
	if got := s.of(run.Owner{Principal: "p", Session: fmt.Sprint(maxSums + 9)}); got.KeptOut != 0 {
		t.Errorf("more returned than written: %+v", got)
	}
}

// TestCtxPurge: a purge needs confirmation, and empties only the caller's knowledge base.
func TestCtxPurge(t *testing.T) {
	x, _ := (&scriptRunner{}).ctx(t)
	bob := tool.WithCaller(t.Context(), tool.Caller{Principal: "token:bob", Session: "s2", Progress: func(float64, string) {}})
	for _, ctx := range []struct {
		repo string
		bob  bool
	}{{"app", false}, {"other", false}, {"app", true}} {
		as := mcptest.AsUser(t.Context())
		if ctx.bob {
			as = bob
		}
		mcptest.CallTool(t, as, &Index{x}, `{"content":"a zebra","source":"notes","repoId":"`+ctx.repo+`"}`)
	}
	const refusal = "Nothing was removed: ctx_purge removes all that is indexed, for good. Call it with confirm: true."
	for arguments, want := range map[string]string{
		`{}`: refusal, `{"confirm":false}`: refusal, `{"confirm":null}`: refusal, `{"confirm":"false"}`: refusal,
		`{"confirm":1}`: "confirm: must be true or false, got a number", `{"confirm":true,"repoId":"nope"}`: "Repository nope not found",
	} {
		if _, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Purge{x}, arguments); r.Text != want || !r.IsError {
			t.Errorf("%s: %q", arguments, r.Text)
		}
	}
	v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Purge{x}, `{"confirm":"true"}`)
	removed, _ := v["removed"].(map[string]any)
	if r.Text != "Purged the knowledge base of app: 1 source, 1 section, 0.0KB removed." || r.IsError || removed["sources"] != 1.0 {
		t.Errorf("%q %v", r.Text, v)
	}
	if _, r = mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Purge{x}, `{"confirm":true}`); r.Text != "The knowledge base of app is empty: there was nothing to remove." || r.IsError {
		t.Errorf("again: %q", r.Text)
	}
	if _, r = mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Search{x}, `{"query":"zebra"}`); r.Text != emptyBase || !r.IsError {
		t.Errorf("after the purge: %q", r.Text)
	}
	if _, r = mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Search{x}, `{"query":"zebra","repoId":"other"}`); !strings.Contains(r.Text, "a zebra") {
		t.Errorf("another repository: %q", r.Text)
	}
	if _, r = mcptest.CallTool(t, bob, &Search{x}, `{"query":"zebra"}`); !strings.Contains(r.Text, "a zebra") {
		t.Errorf("another principal: %q", r.Text)
	}
}

// TestCtxExpiry: expired sources are not found.
func TestCtxExpiry(t *testing.T) {
	now := time.Now()
	x := New(Settings{Repos: []string{"app"}, Knowledge: realIndex(t, index.Options{TTL: time.Hour, Now: func() time.Time { return now }})})
	t.Cleanup(x.Close)
	mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Index{x}, `{"content":"a zebra"}`)
	if _, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Search{x}, `{"query":"zebra"}`); !strings.Contains(r.Text, "a zebra") {
		t.Errorf("%q", r.Text)
	}
	now = now.Add(61 * time.Minute)
	if _, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Search{x}, `{"query":"zebra"}`); r.Text != emptyBase {
		t.Errorf("%q", r.Text)
	}
}
