package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"corral/internal/test/mcptest"
	"corral/job"
	"corral/mcp/ctxtools"
	"corral/mcp/tool"
)

// newSuite returns a Suite with f as engine and a real store.
func newSuite(t *testing.T, f *mcptest.FakeRunner) *Suite {
	t.Helper()
	s := mcptest.Store(t)
	x := New(Settings{
		Scripts: ctxtools.New(ctxtools.Settings{
			Engine:  &job.Engine{Policy: f, Runner: f, Auditor: f, Sessions: f},
			Outputs: s, Repos: []string{"app", "other"}, Paths: map[string]string{"app": "/srv/app"},
		}),
		Artifacts: s,
	})
	t.Cleanup(x.Scripts.Close)
	return x
}

// call calls a tool as user:ada.
func call(t *testing.T, target tool.Tool, arguments string) tool.Result {
	t.Helper()
	r, err := target.Call(mcptest.AsUser(t.Context()), json.RawMessage(arguments))
	if err != nil {
		t.Fatal(err)
	}
	if r.Structured != nil || !r.Whole {
		t.Errorf("%s: not text alone: %+v", arguments, r)
	}
	return r
}

// TestRunReplies: a reply has the output as it is and, unless all went well, how it ended.
func TestRunReplies(t *testing.T) {
	const kill = 9
	for _, tt := range []struct {
		name  string
		stage func(f *mcptest.FakeRunner)
		want  string
		fails bool
	}{
		{"output", func(f *mcptest.FakeRunner) { f.Stdout = "hello\n" }, "hello\n", false},
		{"no newline", func(f *mcptest.FakeRunner) { f.Stdout = "hello" }, "hello", false},
		{"like a footer", func(f *mcptest.FakeRunner) { f.Stdout = "x\n[exit 1, 2 ms]\n\x1b[0m" }, "x\n[exit 1, 2 ms]\n\x1b[0m\n[exit 0]", false},
		{"like a job", func(f *mcptest.FakeRunner) { f.Stdout = "x\r\x1b[2K[job bg_1 runs, 60 s]" }, "x\r\x1b[2K[job bg_1 runs, 60 s]\n[exit 0]", false},
		{"JSON", func(f *mcptest.FakeRunner) { f.Stdout = `["a", 1]` }, `["a", 1]`, false},
		{"nothing", func(*mcptest.FakeRunner) {}, "[exit 0]", false},
		{"both", func(f *mcptest.FakeRunner) { f.Stdout, f.Stderr = "out", "err" }, "out\n[stderr] err\n", false},
		{"errors", func(f *mcptest.FakeRunner) { f.Stderr = "err\n" }, "[stderr] err\n", false},
		{"exit 1", func(f *mcptest.FakeRunner) { f.ExitsWith(1) }, "[exit 1, 1.5 s]", false},
		{"exit 3", func(f *mcptest.FakeRunner) { f.ExitsWith(3).Stdout, f.Stderr = "out", "err" }, "out\n[stderr] err\n[exit 3, 1.5 s]", false},
		{
			"killed", func(f *mcptest.FakeRunner) {
				f.Decision.Spec.Limits.Memory = 2 << 30
				f.Stdout, f.Result.ExitCode, f.Result.Signal, f.Result.Status, f.Result.Limit = "so far", -1, kill, job.Failure, job.LimitMemory
			}, "so far\n[killed by SIGKILL (memory limit 2 GiB reached), 1.5 s]", false,
		},
		{
			"killed by the limit of the user", func(f *mcptest.FakeRunner) {
				f.Result.ExitCode, f.Result.Signal, f.Result.Status, f.Result.Limit, f.Result.UserMemory = -1, kill, job.Failure, job.LimitUserMemory, 18<<30
			}, "[killed by SIGKILL (user_memory 18 GiB of all jobs together reached), 1.5 s]", false,
		},
		{
			"pids", func(f *mcptest.FakeRunner) { f.ExitsWith(4).Result.Limit = job.LimitPIDs },
			"[exit 4, 1.5 s, pids limit reached: it could not start more processes]", false,
		},
		{
			"full directory", func(f *mcptest.FakeRunner) {
				r := &f.ExitsWith(4).Result
				r.Limit, r.FullDirs = job.LimitTmp, []string{"/tmp"}
			},
			"[exit 4, 1.5 s, no space left in /tmp, raise the limits tmp and memory, or run it in a session, whose /tmp and home directory are on disk]",
			false,
		},
		{
			"sensitive", func(f *mcptest.FakeRunner) { f.Result.Sensitive, f.Result.SensitiveMore = []string{".git/hooks/a"}, 2 },
			"[exit 0, 1.5 s, sensitive path changed: .git/hooks/a, and 2 more sensitive paths changed]", false,
		},
		{
			"denied", func(f *mcptest.FakeRunner) { f.Decision.Rule, f.Decision.Reasons = "rules", []string{"no", "never"} },
			"denied: no; never", true,
		},
		{"missing", func(f *mcptest.FakeRunner) { f.Decision.Missing = "no bash" }, "Runtime error: Shell not available. Install bash.", true},
		{"not run", func(f *mcptest.FakeRunner) {
			f.Err = &job.Refusal{Step: "exec", Message: "/bin/bash: permission denied", Errno: 13}
		}, "not run: true cannot be executed: permission denied", true},
		{
			"lost", func(f *mcptest.FakeRunner) {
				f.Stdout, f.Result.Status, f.Result.ExitCode, f.Result.Signal = "so far\n", job.Lost, -1, kill
			}, "so far\n[the jail ended while it was running, 1.5 s]", true,
		},
		{"control characters", func(f *mcptest.FakeRunner) { f.Stdout = "a\xffb\n" }, "a\uFFFDb\n", false},
	} {
		f := mcptest.NewFakeRunner()
		tt.stage(f)
		r := call(t, &Run{newSuite(t, f)}, `{"code":"x"}`)
		if r.Text != tt.want || r.IsError != tt.fails {
			t.Errorf("%s: %q, error %t", tt.name, r.Text, r.IsError)
		}
	}
}

// TestRedacted: secrets are in no reply, whole or in parts.
func TestRedacted(t *testing.T) {
	for _, more := range []string{"", strings.Repeat("1\n2\n", 10_000)} {
		f := mcptest.NewFakeRunner()
		f.Stdout, f.Stderr = more+"token hunter2hunter2\n", "hunter2hunter2"
		x := newSuite(t, f)
		x.Scripts.Secrets = []string{"hunter2hunter2"}
		if r := call(t, &Run{x}, `{"code":"x","intent":"token"}`); strings.Contains(r.Text, "hunter2") || !strings.Contains(r.Text, "[REDACTED") {
			t.Errorf("%q", r.Text)
		}
	}
}

// TestRunRequest: what a call requests, by the usual names of arguments.
func TestRunRequest(t *testing.T) {
	for _, tt := range []struct{ arguments, runtime, dir string }{
		{`{"code":"x"}`, "shell", ""},
		{`{"command":"x","language":"bash","relativeCwd":"a/b"}`, "shell", "a/b"},
		{`{"cmd":"x","runtime":"sh","working_directory":"/srv/app/a"}`, "shell", "a"},
		{`{"code":"x","language":"node","cwd":"/srv/app/"}`, "node", ""},
		{`{"code":"x","language":"py","cwd":"a/../b","repoId":"app","timeout":"5"}`, "python", "b"},
		{`{"script":"x","lang":"JavaScript","repo":"app","timeoutMs":100,"intent":null}`, "node", ""},
	} {
		f := mcptest.NewFakeRunner()
		r := call(t, &Run{newSuite(t, f)}, tt.arguments)
		q := f.Request
		if r.IsError || q.Runtime != tt.runtime || q.Dir != tt.dir || *q.Code != "x" || !q.Share || !q.Background || q.QueueWait != queueTime || q.Tool != "run" {
			t.Errorf("%s: %q, %+v", tt.arguments, r.Text, q)
		}
	}
}

// TestRunRefuses: an error says what is accepted.
func TestRunRefuses(t *testing.T) {
	for _, tt := range []struct{ arguments, want string }{
		{`{}`, "code: is required"},
		{`{"code":"x","tiemout":5}`, `unknown argument "tiemout": did you mean "timeout"?`},
		{`{"code":"x","command":"y"}`, "code: duplicate key"},
		{`{"code":"x","language":"pytest"}`, `language: "pytest" is a program: use language shell with code: python3 -m pytest`},
		{`{"code":"x","language":"pythn"}`, `language: "pythn" (did you mean python?) is not one of: javascript,`},
		{`{"code":"x","cwd":"/etc"}`, `cwd: "/etc" is outside the repository, /srv/app`},
		{`{"code":"x","cwd":"/srv/apple"}`, `cwd: "/srv/apple" is outside the repository, /srv/app`},
		{`{"code":"x","cwd":"../y"}`, `cwd: "../y" is outside the repository`},
		{`{"code":"x","cwd":"/srv/other","repoId":"other"}`, `cwd: "/srv/other" must be relative to the repository`},
		{`{"code":"x","repoId":"nope"}`, "Repository nope not found"},
		{`{"code":"x","timeout":0}`, "timeout: 0 is out of range"},
	} {
		r := call(t, &Run{newSuite(t, mcptest.NewFakeRunner())}, tt.arguments)
		if !r.IsError || !strings.Contains(r.Text, tt.want) || r.Code == "" {
			t.Errorf("%s: %q, code %s", tt.arguments, r.Text, r.Code)
		}
	}
}

// TestTimeout: a call that reaches its timeout leaves a background job, whose end another call waits for. What it wrote is in both
// replies.
func TestTimeout(t *testing.T) {
	f, hold := mcptest.NewFakeRunner(), make(chan struct{})
	f.Stdout = "so far\n"
	f.During = func(ctx context.Context) {
		select {
		case <-hold:
		case <-ctx.Done():
		}
	}
	x := newSuite(t, f)
	x.queue, x.MaxTimeout = 50*time.Millisecond, time.Second
	r := call(t, &Run{x}, `{"code":"x","timeoutMs":50}`)
	id, _, _ := strings.Cut(strings.TrimPrefix(r.Text, "so far\n[job "), " ")
	if !strings.HasPrefix(id, "bg_") || !strings.Contains(r.Text, "timeout after 0.05 s") {
		t.Fatalf("%q", r.Text)
	}
	if r := call(t, &Job{x}, `{"action":"tail"}`); !strings.HasPrefix(r.Text, "so far\n[job "+id+" runs") {
		t.Errorf("tail: %q", r.Text)
	}
	x.Ports = func(_ context.Context, c tool.Caller, repo string) []uint16 {
		if c.Session == "" || repo != "app" {
			return nil
		}
		return []uint16{80, 5173}
	}
	if r := call(t, &Job{x}, `{"action":"tail"}`); !strings.HasSuffix(r.Text, " jobs listen at 127.0.0.1:80 127.0.0.1:5173]") {
		t.Errorf("tail: %q", r.Text)
	}
	if r := call(t, &Job{x}, `{}`); !strings.HasSuffix(r.Text, "\napp: jobs listen at 127.0.0.1:80 127.0.0.1:5173\n") {
		t.Errorf("list: %q", r.Text)
	}
	x.Ports = func(context.Context, tool.Caller, string) []uint16 { return make([]uint16, 9) }
	if r := call(t, &Job{x}, `{}`); strings.Count(r.Text, "127.0.0.1:0") != 8 || !strings.HasSuffix(r.Text, " …\n") {
		t.Errorf("list: %q", r.Text)
	}
	x.Ports = nil
	if r := call(t, &Job{x}, `{"action":"wait","id":"`+id+`","timeout":5000}`); !strings.Contains(r.Text, "timeout cut to 1 s, the maximum") {
		t.Errorf("wait: %q", r.Text)
	}
	if r := call(t, &Output{x}, `{"handle":"`+id+`"}`); !r.IsError || !strings.Contains(r.Text, "still runs") {
		t.Errorf("output: %q", r.Text)
	}
	close(hold)
	if r := call(t, &Job{x}, `{"action":"wait"}`); r.Text != "so far\n" {
		t.Errorf("at its end: %q", r.Text)
	}
	if r := call(t, &Job{x}, `{"action":"wait","lines":1}`); r.Text != "so far\n" {
		t.Errorf("its last line: %q", r.Text)
	}
	if r := call(t, &Output{x}, `{"handle":"`+id+`"}`); r.Text != "so far\n[lines 1-1 of 1]" {
		t.Errorf("output: %q", r.Text)
	}
	if r := call(t, &Job{x}, `{}`); !strings.HasPrefix(r.Text, id+": exit 0, ") {
		t.Errorf("list: %q", r.Text)
	}
}

// TestInput: a job that was run with input reads what tool job sends, until its end.
func TestInput(t *testing.T) {
	f := mcptest.NewFakeRunner()
	f.Stdout = "read\n"
	x := newSuite(t, f)
	x.queue = backgroundTime / 10
	if r := call(t, &Run{x}, `{"code":"x"}`); r.Text != "read\n" || f.Request.Streamed {
		t.Errorf("without input: %q", r.Text)
	}
	if r := call(t, &Run{x}, `{"code":"x","input":true,"background":true}`); !strings.Contains(r.Text, " runs, ") || !f.Request.Streamed {
		t.Fatalf("%q", r.Text)
	}
	if r := call(t, &Job{x}, `{"input":"one\n"}`); !strings.HasPrefix(r.Text, "[job bg_") || !strings.Contains(r.Text, " runs, ") {
		t.Errorf("%q", r.Text)
	}
	if r := call(t, &Job{x}, `{"action":"wait","input":"two","end":true}`); r.Text != "read\n" || f.Stdin != "one\ntwo" {
		t.Errorf("%q, %q", r.Text, f.Stdin)
	}
	if r := call(t, &Job{x}, `{"input":"three"}`); !r.IsError || !strings.Contains(r.Text, "has ended") {
		t.Errorf("after its end: %q", r.Text)
	}
}

// TestTimeoutWithoutRoom: at the maximum of background jobs, a call that reaches its timeout is ended, and what it wrote is shown.
func TestTimeoutWithoutRoom(t *testing.T) {
	f := mcptest.NewFakeRunner()
	f.Stdout, f.Result.Status = "so far\n", job.Cancelled
	f.During = func(ctx context.Context) { <-ctx.Done() }
	x := newSuite(t, f)
	x.queue, x.Scripts.MaxBackground = 50*time.Millisecond, 1
	call(t, &Run{x}, `{"code":"x","background":true}`)
	r := call(t, &Run{x}, `{"code":"x","timeoutMs":50}`)
	if !strings.HasPrefix(r.Text, "so far\n[ended, ") || !strings.Contains(r.Text, "ended after 0.05 s: background: 1 background jobs are running already") {
		t.Errorf("%q", r.Text)
	}
}

// TestLongOutput: long output is shown in parts: its ends, folded repetitions, failed tests and what matches the intent. Tool output
// reads the rest.
func TestLongOutput(t *testing.T) {
	f := mcptest.NewFakeRunner()
	var b strings.Builder
	b.WriteString(strings.Repeat("same\n", 300))
	for n := range 4000 {
		fmt.Fprintf(&b, "line %d\n", n)
	}
	b.WriteString("--- FAIL: TestOrders (0.02s)\nconnection refused by db:5432\n")
	for n := range 4000 {
		fmt.Fprintf(&b, "more %d\n", n)
	}
	f.ExitsWith(1).Stdout = b.String()
	x := newSuite(t, f)
	r := call(t, &Run{x}, `{"code":"x","intent":"connections refused"}`)
	for _, want := range []string{
		"same\n… same line 300 times\nline 0\n", " of 8302 left out (", "… failed tests:\n4301: --- FAIL: TestOrders (0.02s)\n",
		"… lines that match \"connections refused\":\n4301: --- FAIL: TestOrders (0.02s)\n4302: connection refused by db:5432\n4303: more 0\n… the end:\n", "more 3999\n[exit 1, 1.5 s, output handle runtime-app-",
	} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("no %q in:\n%s", want, r.Text)
		}
	}
	if len(r.Text) > maxWhole/8 {
		t.Errorf("%d bytes", len(r.Text))
	}
	_, handle, _ := strings.Cut(strings.TrimSuffix(r.Text, "]"), "output handle ")
	hold := make(chan struct{})
	f.During = func(context.Context) { <-hold }
	x.queue = 50 * time.Millisecond
	call(t, &Run{x}, `{"code":"x","background":true}`)
	close(hold)
	if r := call(t, &Job{x}, `{"action":"wait","lines":2}`); !strings.HasPrefix(r.Text, "more 3998\nmore 3999\n[exit 1, 1.5 s, output handle runtime-app-") {
		t.Errorf("the last lines: %q", r.Text)
	}
	for _, tt := range []struct{ arguments, want string }{
		{`"lines":"4300-4302"`, "line 3999\n--- FAIL: TestOrders (0.02s)\nconnection refused by db:5432\n[lines 4300-4302 of 8302]"},
		{`"lines":[1,2]`, "lines: must be a string, got an array"},
		{`"lines":"-1"`, "more 3999\n[lines 8302-8302 of 8302]"},
		{`"lines":"9-1"`, `"9-1" is not a range of lines`},
		{`"terms":"Refused"`, "4301: --- FAIL: TestOrders (0.02s)\n4302: connection refused by db:5432\n4303: more 0\n"},
		{
			`"terms":["TestOrders","more 0"]`,
			"4300: line 3999\n4301: --- FAIL: TestOrders (0.02s)\n4302: connection refused by db:5432\n4303: more 0\n4304: more 1\n",
		},
		{`"terms":["nothing"]`, "[no line of stdout has a term, of 8302 lines]"},
	} {
		if r := call(t, &Output{x}, `{"handle":"`+handle+`",`+tt.arguments+`}`); !strings.Contains(r.Text, tt.want) {
			t.Errorf("%s: %q", tt.arguments, r.Text)
		}
	}
}

// TestFolded: output that is short when repetitions are folded is shown as a whole.
func TestFolded(t *testing.T) {
	f := mcptest.NewFakeRunner()
	f.Stdout = "a\n" + strings.Repeat("b\n", 20_000) + "c"
	if r := call(t, &Run{newSuite(t, f)}, `{"code":"x"}`); !strings.HasPrefix(r.Text, "a\nb\n… same line 20000 times\nc\n[exit 0, ") {
		t.Errorf("%q", r.Text)
	}
}

// TestListed: what tools/list publishes of all tools is short.
func TestListed(t *testing.T) {
	total := 0
	for _, one := range New(Settings{}).Tools() {
		d := one.Definition()
		if d.Output != nil {
			t.Errorf("%s has an output schema", d.Name)
		}
		total += len(d.Name) + len(d.Title) + len(d.Description) + len(d.Input)
	}
	if maximum := 5000 - 5*125; total > maximum { // a tool has 125 bytes more in JSON, with its part of the message
		t.Errorf("%d bytes", total)
	}
}

// TestFailures: how test runners name failed tests, and lines that only look like it.
func TestFailures(t *testing.T) {
	for _, line := range []string{
		"--- FAIL: TestA (0.00s)", "    --- FAIL: TestA/one (0.00s)", "FAIL\tcorral/mcp\t0.1s", "FAILED tests/a.py::test_b - assert 1 == 2",
		"ERROR tests/a.py::test_b - fixture 'x' not found", "ERROR tests/a.py - ImportError", "not ok 3 - adds", "    not ok 1 - inner", "✖ adds (1.5ms)",
		"  ● sum › adds", "FAIL src/a.test.ts", "test tests::adds ... FAILED",
	} {
		if !namesFailure(line) {
			t.Errorf("%q is not found", line)
		}
	}
	for _, line := range []string{"--- PASS: TestA (0.00s)", "FAIL", "10:00 ERROR connection refused", "ok 3 - not ok", "test tests::adds ... ok", "● bullet"} {
		if namesFailure(line) {
			t.Errorf("%q is found", line)
		}
	}
}
