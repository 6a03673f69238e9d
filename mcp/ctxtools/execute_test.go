package ctxtools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/internal/test/mcptest"
	"corral/job"
	"corral/mcp/tool"
)

// TestCtxRequest: arguments become the engine's request.
func TestCtxRequest(t *testing.T) {
	f := mcptest.NewFakeRunner()
	x, _ := newCtx(t, f)
	mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"javascript","code":"1","timeout":"2500","cwd":"sub","background":"false","intent":null,"more":1}`)
	code := "1"
	want := &job.Request{
		Tool: "ctx_execute", Principal: "user:ada", Session: "s1", ID: strings.Repeat("ab", 16), Repo: "app", Runtime: "node",
		Code: &code, Dir: "sub", Usual: job.Limits{Wall: 2500 * time.Millisecond},
	}
	if !reflect.DeepEqual(f.Request, want) {
		t.Errorf("got %+v", f.Request)
	}
	mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"go","code":"fmt.Println(1)","repoId":"other"}`)
	if f.Request.Repo != "other" || *f.Request.Code != "package main; import \"fmt\"; func main() { fmt.Println(1)\n}\n" || f.Request.Usual.Wall != 0 {
		t.Errorf("got %+v %q", f.Request, *f.Request.Code)
	}
}

// TestCtxRepo: how the repository of a call is chosen.
func TestCtxRepo(t *testing.T) {
	for _, tt := range []struct {
		repo       string
		may        []string
		named      string
		want, fail string
	}{
		{"", nil, "", "app", ""},
		{"other", nil, "", "other", ""},
		{"other", nil, "app", "app", ""},
		{"other", []string{"app"}, "", "", "you may not use any repository"},
		{"", []string{"other"}, "", "other", ""},
		{"", []string{"other"}, "app", "", "Repository app not found"},
		{"", []string{}, "", "", "you may not use any repository"},
		{"gone", nil, "", "", "you may not use any repository"},
	} {
		x := New(Settings{Repos: []string{"app", "other"}, Repo: tt.repo})
		got, err := x.RepoOf(tool.Caller{Repos: tt.may}, tt.named)
		if got != tt.want || err == nil != (tt.fail == "") || err != nil && err.Error() != tt.fail {
			t.Errorf("%+v: %q, %v", tt, got, err)
		}
	}
}

// TestCtxSituations: the replies in the table of the contract.
func TestCtxSituations(t *testing.T) {
	const kill = 9
	for _, tt := range []struct {
		name, language string
		stage          func(f *mcptest.FakeRunner)
		want           string
		isError        bool
		status         string
	}{
		{"exit 0", "python", func(f *mcptest.FakeRunner) { f.Stdout, f.Stderr = "a\nb\n", "noise" }, "a\nb\n[stderr] noise", false, "success"},
		{"nothing", "python", func(f *mcptest.FakeRunner) { f.Stderr = "noise" }, "(no output)\n[stderr] noise", false, "success"},
		{"failure", "python", func(f *mcptest.FakeRunner) { f.ExitsWith(3).Stdout, f.Stderr = "out", "err" }, "Exit code: 3\n\nstdout:\nout\n\nstderr:\nerr", true, "failure"},
		{"failure, nothing", "python", func(f *mcptest.FakeRunner) { f.ExitsWith(1) }, "Exit code: 1\n\nstdout:\n\n\nstderr:\n", true, "failure"},
		{"shell, exit 1", "shell", func(f *mcptest.FakeRunner) { f.ExitsWith(1).Stdout, f.Stderr = "diff", "err" }, "diff\n[stderr] err\n[exit 1, 1.5 s]", false, "failure"},
		{"shell, exit 1, nothing", "shell", func(f *mcptest.FakeRunner) { f.ExitsWith(1).Stderr = "err" }, "Exit code: 1\n\nstdout:\n\n\nstderr:\nerr", true, "failure"},
		{"shell, exit 2", "shell", func(f *mcptest.FakeRunner) { f.ExitsWith(2).Stdout = "out" }, "Exit code: 2\n\nstdout:\nout\n\nstderr:\n", true, "failure"},
		{"python, exit 1", "python", func(f *mcptest.FakeRunner) { f.ExitsWith(1).Stdout = "out" }, "Exit code: 1\n\nstdout:\nout\n\nstderr:\n", true, "failure"},
		{
			"signal", "shell",
			func(f *mcptest.FakeRunner) {
				f.Stdout, f.Result = "out", job.Result{Status: job.Failure, ExitCode: -1, Signal: 15}
			},
			"Killed by SIGTERM\n\nstdout:\nout\n\nstderr:\n", true, "failure",
		},
		{
			"memory", "python",
			func(f *mcptest.FakeRunner) {
				f.Decision.Spec.Limits.Memory = 2 << 30
				f.Stderr, f.Result = "err", job.Result{Status: job.Failure, ExitCode: -1, Signal: kill, Limit: job.LimitMemory}
			},
			"Killed by SIGKILL (memory limit 2 GiB reached)\n\nstdout:\n\n\nstderr:\nerr", true, "failure",
		},
		{
			"disk, when its first process was gone", "python",
			func(f *mcptest.FakeRunner) {
				f.Decision.Spec.Limits.Disk = 1000
				f.Result = job.Result{Status: job.Failure, Limit: job.LimitDisk}
			},
			"Killed by SIGKILL (disk limit 1000 bytes reached)\n\nstdout:\n\n\nstderr:\n", true, "failure",
		},
		{
			"pids", "shell",
			func(f *mcptest.FakeRunner) { f.ExitsWith(4).Result.Limit = job.LimitPIDs },
			"Exit code: 4\n\nstdout:\n\n\nstderr:\n[pids limit reached: it could not start more processes]", true, "failure",
		},
		{
			"full directory", "shell",
			func(f *mcptest.FakeRunner) {
				r := &f.ExitsWith(4).Result
				r.Limit, r.FullDirs = job.LimitTmp, []string{"/dev/shm"}
			},
			"Exit code: 4\n\nstdout:\n\n\nstderr:\n[no space left in /dev/shm, raise the limits tmp and memory]", true, "failure",
		},
		{
			"timeout, partial", "shell",
			func(f *mcptest.FakeRunner) {
				f.Decision.Spec.Limits.Wall = 400 * time.Millisecond
				f.Stdout, f.Stderr, f.Result = "so far\n", "err", job.Result{Status: job.Timeout, ExitCode: -1, Signal: kill}
			},
			"so far\n\n\n_(timed out after 400ms — partial output shown above)_\n[stderr] err", false, "timeout",
		},
		{
			"timeout, none", "shell",
			func(f *mcptest.FakeRunner) {
				f.Decision.Spec.Limits.Wall = 400 * time.Millisecond
				f.Stderr, f.Result = "err", job.Result{Status: job.Timeout, ExitCode: -1, Signal: kill}
			},
			"Execution timed out after 400ms\n\nstderr:\nerr", true, "timeout",
		},
		{
			"language missing", "ruby", func(f *mcptest.FakeRunner) { f.Decision.Missing = "no ruby in /usr/bin" },
			"Runtime error: Ruby not available. Install ruby.", true, "",
		},
		{
			"language without a package", "typescript", func(f *mcptest.FakeRunner) { f.Decision.Missing = "no tsx" },
			"Runtime error: TypeScript not available. Install it: npm install --global tsx.", true, "",
		},
		{
			"denied", "ruby",
			func(f *mcptest.FakeRunner) {
				f.Decision.Rule, f.Decision.Reasons = "runtime.allowed", []string{"one", "two"}
			},
			"one; two", true, "",
		},
		{
			"not executable", "ruby", func(f *mcptest.FakeRunner) {
				f.Err = &job.Refusal{Step: "exec", Message: "/usr/bin/ruby: permission denied", Errno: 13}
			},
			"Runtime error: true cannot be executed: permission denied", true, "failure",
		},
		{
			"lost", "ruby", func(f *mcptest.FakeRunner) { f.Result = job.Result{Status: job.Lost, ExitCode: -1, Signal: kill} },
			"Runtime error: the jail ended while the job was running", true, "failure",
		},
		{
			"no supervisor", "ruby", func(f *mcptest.FakeRunner) { f.Err = fmt.Errorf("%w at /run/x", job.ErrUnavailable) },
			"no supervisor at /run/x", true, "",
		},
		{
			"the server is shutting down", "ruby", func(f *mcptest.FakeRunner) { f.Result = job.Result{Status: job.Cancelled, ExitCode: -1, Signal: kill} },
			"the server is shutting down", true, "",
		},
		{"no text", "ruby", func(f *mcptest.FakeRunner) { f.Stdout = "a\xffb" }, "a\uFFFDb", false, "success"},
	} {
		f := mcptest.NewFakeRunner()
		tt.stage(f)
		x, _ := newCtx(t, f)
		v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"`+tt.language+`","code":"x"}`)
		if tt.name == "the server is shutting down" {
			r.Text = v["message"].(string)
		}
		if r.Text != tt.want || r.IsError != tt.isError {
			t.Errorf("%s: %t, %q", tt.name, r.IsError, r.Text)
		}
		if status, _ := v["status"].(string); status != tt.status {
			t.Errorf("%s: status %q: %v", tt.name, status, v)
		}
		switch {
		case tt.status != "" && v["text"] != r.Text:
			t.Errorf("%s: structuredContent.text is %q", tt.name, v["text"])
		case tt.status == "" && v["message"] != tt.want:
			t.Errorf("%s: %v", tt.name, v)
		}
	}
}

// TestCtxFacts: structuredContent has the facts of the text.
func TestCtxFacts(t *testing.T) {
	f := mcptest.NewFakeRunner().ExitsWith(3)
	f.Stdout, f.Stderr = "out", "error"
	x, _ := newCtx(t, f)
	v, _ := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"python","code":"x"}`)
	handle, _ := v["artifactHandle"].(string)
	if v["exitCode"] != 3.0 || v["stdoutBytes"] != 3.0 || v["stderrBytes"] != 5.0 || v["durationMs"] != 1500.0 || v["source"] != "execute:python" ||
		v["policyDecision"].(map[string]any)["auditHash"] != mcptest.SomeHash {
		t.Errorf("got %v", v)
	}
	if got := readStored(t, x, handle, "stderr"); got != "error" {
		t.Errorf("stored %q", got)
	}
	f.Decision.Rule, f.Decision.Reasons = "x", []string{"no"}
	v, _ = mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"python","code":"x"}`)
	if v["code"] != tool.CodeDenied || v["details"].(map[string]any)["auditHash"] != mcptest.SomeHash {
		t.Errorf("denied: %v", v)
	}
}

// TestCtxArguments: accepted arguments, and the messages for invalid ones.
func TestCtxArguments(t *testing.T) {
	long := strings.Repeat("x", 1<<20+1)
	for _, tt := range []struct{ arguments, want string }{
		{`{}`, "language: is required"},
		{`{"language":"python"}`, "code: is required"},
		{`{"language":"python","code":""}`, "code: has 0 bytes, the minimum is 1"},
		{`{"language":"cobol","code":"x"}`, `language: "cobol" is not one of: javascript, typescript, python, shell, ruby, go, rust, php, perl, r, elixir, csharp`},
		{`{"language":"pytest","code":"x"}`, `language: "pytest" is not one of: javascript, typescript, python, shell, ruby, go, rust, php, perl, r, elixir, csharp. "pytest" is a program: use language "shell" with code "python3 -m pytest"`},
		{`{"language":"pyton","code":"x"}`, `language: "pyton" is not one of: javascript, typescript, python, shell, ruby, go, rust, php, perl, r, elixir, csharp (did you mean "python"?)`},
		{`{"language":"python","code":"x","cwd":"../x"}`, `cwd: "../x" is outside the repository`},
		{`{"language":"python","code":"x","cwd":"/etc"}`, `cwd: "/etc" `},
		{`{"language":"python","code":"x","timeout":0}`, "timeout: 0 is out of range: 1 to 86400000"},
		{`{"language":"python","code":"x","timeout":-1}`, "timeout: -1 is out of range"},
		{`{"language":"python","code":"x","timeout":null}`, "timeout: null is out of range"},
		{`{"language":"python","code":"x","timeout":1e300}`, "timeout: 1e300 is out of range"},
		{`{"language":"python","code":"x","timeout":"Inf"}`, "timeout: Inf is out of range"},
		{`{"language":"python","code":"x","timeout":"NaN"}`, "timeout: NaN is not an integer"},
		{`{"language":"python","code":"x","cwd":"a\u0000"}`, "cwd: contains a NUL byte"},
		{`{"language":"python","code":"print(1)\u0000print(2)"}`, "code: contains a NUL byte"},
		{`{"language":"python","code":"x","repoId":"nope"}`, "Repository nope not found"},
		{`{"language":"python","code":"` + long + `"}`, "code: has 1048577 bytes, the maximum is 1048576"},
	} {
		f := mcptest.NewFakeRunner()
		x, _ := newCtx(t, f)
		v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, tt.arguments)
		if !r.IsError || !strings.HasPrefix(r.Text, tt.want) || v["message"] != r.Text || f.Request != nil {
			t.Errorf("%.80s: %q", tt.arguments, r.Text)
		}
	}
	for _, more := range []string{
		`"timeout":400`, `"timeout":"400"`, `"timeout":" 400 "`, `"timeout":4e2`, `"background":null`, `"background":"false"`,
		`"intent":""`, `"whatever":{"a":[1]}`, `"cwd":""`,
	} {
		f := mcptest.NewFakeRunner()
		x, _ := newCtx(t, f)
		if _, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"python","code":"x",`+more+`}`); r.IsError {
			t.Errorf("%s: %q", more, r.Text)
		}
	}
}

// TestCtxCancelled: a cancelled call has no reply.
func TestCtxCancelled(t *testing.T) {
	f := mcptest.NewFakeRunner()
	ctx, cancel := context.WithCancel(mcptest.AsUser(t.Context()))
	f.During = func(context.Context) { cancel() }
	f.Result = job.Result{Status: job.Cancelled, ExitCode: -1, Signal: 9}
	x, _ := newCtx(t, f)
	if _, err := (&Execute{x}).Call(ctx, json.RawMessage(`{"language":"python","code":"x"}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestCtxDefinitions: descriptions are within the limit and list the host's languages.
func TestCtxDefinitions(t *testing.T) {
	for _, tt := range []struct {
		runtimes []string
		want     string
	}{
		{nil, "Languages on this host: javascript, typescript, python, shell, ruby, go, rust, php, perl, r, elixir, csharp."},
		{[]string{"node", "shell"}, "Languages on this host: javascript, shell. Not installed: typescript, python, ruby, go, rust, php, perl, r, elixir, csharp."},
		{[]string{}, "This host has no program for any language."},
	} {
		x := New(Settings{Runtimes: tt.runtimes})
		if d := (&Execute{x}).Definition(); !strings.Contains(d.Description, tt.want) || len(d.Description) > 2048 {
			t.Errorf("%s has %d bytes: %s", d.Name, len(d.Description), d.Description)
		}
	}
	for _, tool := range []tool.Tool{&Execute{&Suite{}}, &ExecuteFile{&Suite{}}, &Job{&Suite{}}, &Jobs{&Suite{}}} {
		d := tool.Definition()
		var in struct {
			Type       string
			Additional *bool `json:"additionalProperties"`
			Required   []string
		}
		if err := json.Unmarshal(d.Input, &in); err != nil || in.Type != "object" || in.Additional != nil {
			t.Errorf("%s: %v, %+v", d.Name, err, in)
		}
		if d.Name == "ctx_execute" && !slices.Equal(in.Required, []string{"language", "code"}) {
			t.Errorf("%s requires %v", d.Name, in.Required)
		}
	}
}
