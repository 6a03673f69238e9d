package ctxtools

import (
	"context"
	"strings"
	"testing"
	"time"

	"corral/internal/test/mcptest"
	"corral/job"
	"corral/mcp/tool"
	"corral/store/index"
)

// TestFooterChanges: a reply says how many files differ from the repository when that is news, and names sensitive ones.
func TestFooterChanges(t *testing.T) {
	f := mcptest.NewFakeRunner()
	f.Stdout, f.Decision.Spec.Workspace = "out", job.Overlay
	x, _ := newCtx(t, f)
	var changes job.Changes
	x.Engine.(*job.Engine).Changes = func(context.Context, job.Spec) (*job.Changes, error) { return &changes, nil }
	call := func() string {
		_, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"python","code":"x"}`)
		return r.Text
	}
	if got := call(); got != "out" {
		t.Errorf("nothing changed: %q", got)
	}
	changes.Entries = []job.Change{{Path: "a", Kind: "added", Type: "file"}}
	if got := call(); got != "out\n[exit 0, 1.5 s, 1 file changed, not applied]" {
		t.Errorf("one file: %q", got)
	}
	if got := call(); got != "out" {
		t.Errorf("no news: %q", got)
	}
	for _, tt := range []struct{ paths, want string }{
		{"a d/ d/b .git/ .git/index", "2 files changed"},
		{".git/ .git/index", ""},
		{".git/ .git/index .git/HEAD .git/logs/", ".git/ changed"},
		{"sub/.git/HEAD sub/", "sub/.git/ changed"},
		{"", "0 files changed"},
	} {
		changes.Entries = nil
		for _, p := range strings.Fields(tt.paths) {
			c := job.Change{Path: strings.TrimSuffix(p, "/"), Kind: "modified", Type: job.TypeFile}
			if p != c.Path {
				c.Type = job.TypeDirectory
			}
			changes.Entries = append(changes.Entries, c)
		}
		if got := call(); tt.want == "" && got != "out" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q", tt.paths, got)
		}
	}
	changes.Entries = []job.Change{{Path: "a", Kind: "added", Type: "file"}}
	changes.More, f.Result.Sensitive = 1, []string{".git/hooks/pre-commit"}
	f.ExitsWith(2)
	if got := call(); !strings.HasSuffix(got, "\n\nstderr:\n[2 files changed, not applied, sensitive path changed: .git/hooks/pre-commit]") {
		t.Errorf("a failure: %q", got)
	}
}

// TestTimeoutIsCut: a timeout above the policy's maximum is cut to it, and the reply says so.
func TestTimeoutIsCut(t *testing.T) {
	f := mcptest.NewFakeRunner()
	f.Stdout, f.Decision.Spec.Limits.Wall = "out", time.Minute
	x, _ := newCtx(t, f)
	for asked, want := range map[string]string{"120000": "out\n[exit 0, 1.5 s, timeout cut to 60000ms, the maximum]", "60000": "out", "1000": "out"} {
		_, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"python","code":"x","timeout":`+asked+`}`)
		if r.Text != want || r.IsError || f.Request.Limits.Wall != 0 {
			t.Errorf("%s: %q", asked, r.Text)
		}
	}
}

// TestIgnoredArguments: a reply names the arguments that were ignored, with those that were probably meant; errors do, too.
func TestIgnoredArguments(t *testing.T) {
	f := mcptest.NewFakeRunner()
	f.Stdout = "out"
	x, _ := newCtx(t, f)
	for _, tt := range []struct {
		tool            int
		arguments, want string
	}{
		{0, `{"language":"python","code":"x","relativeCwd":"sub","timeoutMs":5}`, "out"},
		{0, `{"language":"python","code":"x","intents":"a"}`, "out\n[ignored: unknown argument \"intents\": did you mean \"intent\"?]"},
		{0, `{"lang":"python","code":"x"}`, `language: is required; ignored: unknown argument "lang": did you mean "language"?`},
		{2, `{"commands":[{"label":"a","command":"x","cwdd":1}],"zzzzzz":1}`, `[ignored: unknown argument "commands[0].cwdd", unknown argument "zzzzzz"]`},
		{3, `{"queries":["x"],"limits":1}`, `ignored: unknown argument "limits": did you mean "limit"?]`},
		{6, `{"all":true}`, "No jobs in the background.\n[ignored: unknown argument \"all\"]"},
		{0, `{"language":"python","code":"x","aaaaaa1":1,"aaaaaa2":1,"aaaaaa3":1,"aaaaaa4":1,"aaaaaa5":1,"aaaaaa6":1,"aaaaaa7":1}`, `unknown argument "aaaaaa5", and 2 more]`},
	} {
		v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), x.Tools()[tt.tool], tt.arguments)
		said, _ := v["text"].(string)
		if r.IsError {
			said, _ = v["message"].(string)
		}
		if !strings.HasSuffix(r.Text, tt.want) || said != r.Text {
			t.Errorf("%s: %q, structured %q", tt.arguments, r.Text, said)
		}
	}
}

// TestSearchRightAfter: a search that follows a run finds what the run wrote, however short, on either stream.
func TestSearchRightAfter(t *testing.T) {
	f := mcptest.NewFakeRunner()
	f.Stdout, f.Stderr = "the needle\n", "a warning\n"
	x, k := newCtx(t, f)
	k.hold = make(chan struct{})
	mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"shell","code":"x"}`)
	time.AfterFunc(10*time.Millisecond, func() { close(k.hold) })
	for _, word := range []string{"needle", "warning"} {
		_, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Search{x}, `{"queries":["`+word+`"]}`)
		if !strings.Contains(r.Text, word+"\n") || r.IsError {
			t.Errorf("%s: %q", word, r.Text)
		}
	}
}

// TestNothingIsLost: what a run wrote before a timeout or a limit ended it is in the reply, and can be searched.
func TestNothingIsLost(t *testing.T) {
	for _, result := range []job.Result{
		{Status: job.Timeout, ExitCode: -1, Signal: 9},
		{Status: job.Failure, ExitCode: -1, Signal: 9, Limit: job.LimitMemory},
		{Status: job.Failure, ExitCode: -1, Signal: 9, Limit: job.LimitDisk},
	} {
		for _, stdout := range []string{"", "begun\n"} {
			f := mcptest.NewFakeRunner()
			f.Stdout, f.Stderr, f.Result = stdout, "warned\n", result
			x, _ := newCtx(t, f)
			_, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"shell","code":"x"}`)
			if !strings.Contains(r.Text, stdout) || !strings.Contains(r.Text, "warned") {
				t.Errorf("%s: %q", result.Status, r.Text)
			}
			found, err := x.Recall(t.Context(), tool.CallerOf(mcptest.AsUser(t.Context())), "app", index.Query{Text: "warned", Limit: 3})
			if err != nil || len(found.Hits) != 1 {
				t.Errorf("%s: %+v, %v", result.Status, found, err)
			}
		}
	}
}
