package execute

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/internal/strictjson"
	"corral/internal/test/mcptest"
	"corral/job"
	"corral/mcp/run"
	"corral/mcp/server"
	"corral/mcp/tool"
	"corral/store/artifact"
)

func sandboxTool(f *mcptest.FakeRunner) *Sandbox {
	return &Sandbox{
		Engine: &job.Engine{Policy: f, Runner: f, Auditor: f, Sessions: f}, Repos: []string{"app", "other"},
		Paths: map[string]string{"app": "/srv/app", "other": "/srv/other"},
	}
}

// execSandbox calls the tool through a server and returns the text of the result's only block.
func execSandbox(t *testing.T, tool tool.Tool, arguments string) (text string, isError bool) {
	t.Helper()
	r := callThroughServer(t, tool, "sandbox_exec", arguments)
	return r.Content[0].Text, r.IsError
}

// A served is a result as a client receives it, with one text block.
type served struct {
	Content []struct {
		Type, Text string
	} `json:"content"`
	Structured json.RawMessage `json:"structuredContent"`
	IsError    bool            `json:"isError"`
}

// callThroughServer calls a tool by name through a server.
func callThroughServer(t *testing.T, target tool.Tool, name, arguments string) served {
	t.Helper()
	line := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + name + `","arguments":` + arguments + `}}`
	var out strings.Builder
	s := server.New(server.Options{Tools: []tool.Tool{target}})
	if err := s.ServeStdio(t.Context(), strings.NewReader(line), &out, tool.Caller{Principal: "user:ada", Session: "s1"}); err != nil {
		t.Fatal(err)
	}
	var m struct{ Result served }
	if err := json.Unmarshal([]byte(out.String()), &m); err != nil || len(m.Result.Content) != 1 || m.Result.Content[0].Type != "text" {
		t.Fatalf("%v: %.300s", err, out.String())
	}
	return m.Result
}

// TestSandboxErrors: the texts of the contract, and their precedence.
func TestSandboxErrors(t *testing.T) {
	const (
		both     = "Cannot provide both 'command' and 'args'. Use 'command' for shell commands or 'args' for direct execution."
		neither  = "Must provide either 'command' or 'args'."
		relative = "working_directory must be an absolute path, got: tmp"
		instant  = "timeout must be at least 1 second."
		large    = "stdin content exceeds the 2 MiB limit (2097153 bytes). Split into smaller chunks or use a different approach."
	)
	stdin := `"stdin":"` + strings.Repeat("x", 2<<20+1) + `"`
	for _, tt := range []struct{ arguments, want string }{
		{`{}`, neither},
		{`{"command":""}`, neither},
		{`{"command":"","args":[]}`, neither},
		{`{"command":null,"args":null,"stdin":null,"working_directory":null,"timeout":null}`, neither},
		{`{"command":"true","args":["true"]}`, both},
		{`{"command":"true","args":["true"],"working_directory":"tmp","timeout":0}`, both},
		{`{"working_directory":"tmp","timeout":0}`, neither},
		{`{"command":"true","working_directory":"tmp"}`, relative},
		{`{"command":"true","working_directory":"tmp","timeout":0,` + stdin + `}`, relative},
		{`{"command":"true","timeout":0}`, instant},
		{`{"command":"true","timeout":-1e300}`, instant},
		{`{"command":"true","timeout":0,` + stdin + `}`, instant},
		{`{"command":"true",` + stdin + `}`, large},
		{`{"command":"true","stdin":"` + strings.Repeat("é", 1<<20) + `x"}`, large},
		{`{"cmd":"ls"}`, `unknown argument "cmd"`},
		{`{"command":"a\u0000b"}`, "a command must not contain NUL bytes"},
		{`{"command":"` + strings.Repeat("x", 128<<10) + `"}`, "a command or argument must have at most 131071 bytes: write a script to a file through stdin, and run that"},
	} {
		f := mcptest.NewFakeRunner()
		text, isError := execSandbox(t, sandboxTool(f), tt.arguments)
		if !isError || !strings.HasPrefix(text, tt.want) || !strings.HasPrefix(tt.want, "unknown") && text != tt.want {
			t.Errorf("%.100s: error %t, %q", tt.arguments, isError, text)
		}
		if f.Request != nil {
			t.Errorf("%.100s reached the policy", tt.arguments)
		}
	}
}

// TestSandboxRequest: arguments become the engine's request.
func TestSandboxRequest(t *testing.T) {
	whole := strings.Repeat("x", 2<<20)
	for _, tt := range []struct {
		arguments string
		want      job.Request
	}{
		{`{"command":"echo $HOME; false"}`, job.Request{Command: []string{"/bin/bash", "-c", "echo $HOME; false"}, Dir: "/"}},
		{`{"args":["ls","-l"],"command":""}`, job.Request{Command: []string{"ls", "-l"}, Dir: "/"}},
		{`{"args":["ls"],"working_directory":""}`, job.Request{Command: []string{"ls"}, Dir: "/"}},
		{`{"args":["ls"],"working_directory":"/home/../etc/"}`, job.Request{Command: []string{"ls"}, Dir: "/etc"}},
		{`{"args":["cat"],"stdin":"x"}`, job.Request{Command: []string{"cat"}, Dir: "/", Stdin: "x"}},
		{`{"args":["cat"],"stdin":"` + whole + `"}`, job.Request{Command: []string{"cat"}, Dir: "/", Stdin: whole}},
		{`{"args":["ls"],"timeout":1}`, job.Request{Command: []string{"ls"}, Dir: "/", Usual: job.Limits{Wall: time.Second}}},
		{`{"args":["ls"],"timeoutMs":1500}`, job.Request{Command: []string{"ls"}, Dir: "/", Usual: job.Limits{Wall: 1500 * time.Millisecond}}},
		{`{"args":["ls"],"cwd":"/tmp"}`, job.Request{Command: []string{"ls"}, Dir: "/tmp"}},
		{`{"args":["ls"],"repoId":"other"}`, job.Request{Command: []string{"ls"}, Dir: "/", Repo: "other"}},
		{`{"args":["ls"],"repoId":"other","working_directory":"sub/"}`, job.Request{Command: []string{"ls"}, Dir: "/srv/other/sub", Repo: "other"}},
		{`{"args":["ls"],"repoId":"other","working_directory":"."}`, job.Request{Command: []string{"ls"}, Dir: "/srv/other", Repo: "other"}},
		{`{"args":["ls"],"timeout":1e300}`, job.Request{Command: []string{"ls"}, Dir: "/", Usual: job.Limits{Wall: (1<<31 - 1) * time.Second}}},
	} {
		f := mcptest.NewFakeRunner()
		if text, isError := execSandbox(t, sandboxTool(f), tt.arguments); isError {
			t.Errorf("%.100s: %s", tt.arguments, text)
			continue
		}
		want := tt.want
		want.Tool, want.Principal, want.Session, want.Root = "sandbox_exec", "user:ada", "s1", true
		want.Usual.Wall = cmp.Or(want.Usual.Wall, 2*time.Minute) // the policy lowers it to the maximum
		want.Repo = cmp.Or(want.Repo, "app")
		f.Request.ID = ""
		if !reflect.DeepEqual(*f.Request, want) {
			t.Errorf("%.100s: %+v", tt.arguments, *f.Request)
		}
		if f.Stdin != tt.want.Stdin || f.Spec.Session != "5e55" {
			t.Errorf("%.100s: %d bytes of input, session %q", tt.arguments, len(f.Stdin), f.Spec.Session)
		}
	}
}

// TestSandboxReplies: the reply for each outcome of a job.
func TestSandboxReplies(t *testing.T) {
	result := func(status job.Status, code, signal int, limit string) job.Result {
		return job.Result{Status: status, ExitCode: code, Signal: signal, Limit: limit, Usage: job.Usage{Wall: 12 * time.Millisecond}}
	}
	reply := func(stdout, stderr string, code int) string {
		return string(strictjson.Encode(sandboxReply{stdout, stderr, code, 12}))
	}
	const (
		late = "[command timed out after 1s]"
		much = "[ output limit exceeded (2097152 bytes). Command terminated. No output returned. Re-run with head, tail, or grep to manage output size.]"
	)
	exact := strings.Repeat("x", 2<<20-3)
	for _, tt := range []struct {
		name           string
		result         job.Result
		stdout, stderr string
		change         func(f *mcptest.FakeRunner, s *Sandbox)
		want           string
	}{
		{"success", result(job.Success, 0, 0, ""), "out\n", "err", nil, `{"stdout":"out\n","stderr":"err","exit_code":0,"exec_duration_ms":12}`},
		{"failure", result(job.Failure, 3, 0, ""), "", "", nil, reply("", "", 3)},
		{"127 of the shell", result(job.Failure, 127, 0, ""), "", "x: not found\n", nil, reply("", "x: not found\n", 127)},
		{"signal", result(job.Failure, -1, 11, ""), "a", "", nil, reply("a", "", 139)},
		{"memory", result(job.Failure, -1, 9, "memory"), "", "a", nil, reply("", "a\ncorral: memory limit reached: the command was ended\n", 137)},
		{"pids", result(job.Failure, 1, 0, "pids"), "", "", nil, reply("", "corral: pids limit reached: the command could not start more processes\n", 1)},
		{
			"full directory",
			job.Result{Status: job.Failure, ExitCode: 1, Limit: job.LimitTmp, FullDirs: []string{"/dev/shm"}, Usage: job.Usage{Wall: 12 * time.Millisecond}},
			"", "", nil,
			reply("", "corral: no space left in /dev/shm\nhint: raise the limits tmp and memory\n", 1),
		},
		{"sensitive paths", job.Result{Status: job.Success, Sensitive: []string{".git/config"}, SensitiveMore: 2, Usage: job.Usage{Wall: 12 * time.Millisecond}}, "a", "b", nil, reply("a", "b\ncorral: sensitive path changed: .git/config\ncorral: and 2 more sensitive paths changed\n", 0)},
		{
			"sensitive paths of packages",
			job.Result{Status: job.Success, Sensitive: []string{"vendor/a/.envrc", "vendor/b/.envrc", ".git/hooks/c"}, Usage: job.Usage{Wall: 12 * time.Millisecond}},
			"", "", nil,
			reply("", "corral: sensitive path changed: .git/hooks/c\ncorral: 2 sensitive paths changed below installed packages, such as vendor/a/.envrc\n", 0),
		},
		{"the first was gone", result(job.Failure, 0, 0, "disk"), "", "", nil, reply("", "corral: disk limit reached: the command was ended\n", 137)},
		{"not UTF-8", result(job.Success, 0, 0, ""), "a\xff\xfeb\xe2\x82", "\x80", nil, reply("a\uFFFD\uFFFDb\uFFFD\uFFFD", "\uFFFD", 0)},
		{"timeout", result(job.Timeout, -1, 9, ""), "some", "more", nil, reply("", late, 124)},
		{"timeout, partial", result(job.Timeout, -1, 9, ""), "some", "more", func(_ *mcptest.FakeRunner, s *Sandbox) { s.Partial = true }, reply("some", "more\n"+late, 124)},
		{"all that fits", result(job.Success, 0, 0, ""), exact, "abc", nil, reply(exact, "abc", 0)},
		{"one byte more", result(job.Success, 0, 0, ""), exact, "abcd", nil, reply("", much, 1)},
		{"too much for another limit", result(job.Success, 0, 0, ""), "abc", "de", func(_ *mcptest.FakeRunner, s *Sandbox) { s.OutputLimit = 4 }, reply("", strings.Replace(much, "2097152", "4", 1), 1)},
		{"session replaced", result(job.Success, 0, 0, ""), "a", "", func(f *mcptest.FakeRunner, _ *Sandbox) { f.Replaced = job.SessionForRoom }, reply("a", "corral: "+job.SessionForRoom.String()+"; this is a new one, and files from earlier calls are gone\n", 0)},
		{"not there", result("", 0, 0, ""), "", "", func(f *mcptest.FakeRunner, _ *Sandbox) {
			f.Err = &job.Refusal{Step: "exec", Errno: 2, Message: "nope: no such program"}
		}, reply("", "corral: true: no such program in the jail\n", 127)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := mcptest.NewFakeRunner()
			f.Decision.Spec.Limits.Wall = time.Second
			f.Result, f.Stdout, f.Stderr = tt.result, tt.stdout, tt.stderr
			s := sandboxTool(f)
			if tt.change != nil {
				tt.change(f, s)
			}
			text, isError := execSandbox(t, s, `{"args":["x"]}`)
			if isError || text != tt.want {
				t.Errorf("error %t, %d bytes: %.300q", isError, len(text), text)
			}
		})
	}
}

// TestSandboxOutputLimitEndsJob: a command that exceeds the output limit is ended, and the reply says so.
func TestSandboxOutputLimitEndsJob(t *testing.T) {
	f := mcptest.NewFakeRunner()
	f.Stdout = strings.Repeat("y\n", 2<<20)
	f.Result = job.Result{Status: job.Cancelled, ExitCode: -1}
	f.During = func(ctx context.Context) { <-ctx.Done() }
	text, isError := execSandbox(t, sandboxTool(f), `{"command":"yes"}`)
	if isError || !strings.Contains(text, "output limit exceeded (2097152 bytes)") || !strings.Contains(text, `"exit_code":1`) {
		t.Errorf("error %t: %.300s", isError, text)
	}
}

// TestSandboxRefused: the errors of commands that were not run.
func TestSandboxRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(f *mcptest.FakeRunner, s *Sandbox)
		want   string
	}{
		{"denied", func(f *mcptest.FakeRunner, _ *Sandbox) {
			f.Decision.Rule, f.Decision.Reasons = "rules", []string{"not today", "nor tomorrow"}
		}, "not today; nor tomorrow"},
		{"no such directory", func(f *mcptest.FakeRunner, _ *Sandbox) { f.Err = &job.Refusal{Step: "cwd", Errno: 2, Message: "x"} }, "Working directory does not exist: /"},
		{"no supervisor", func(f *mcptest.FakeRunner, _ *Sandbox) {
			f.Err = fmt.Errorf("%w: it closed the connection", job.ErrUnavailable)
		}, "no supervisor: it closed the connection"},
		{"no room", func(f *mcptest.FakeRunner, _ *Sandbox) {
			f.Err = &job.Refusal{Step: "jail", Message: "no room", Hint: "try again"}
		}, "no room\nhint: try again"},
		{"lost", func(f *mcptest.FakeRunner, _ *Sandbox) { f.Result.Status = job.Lost }, "the session ended while the command was running: the next command starts a new session"},
		{"no repository", func(_ *mcptest.FakeRunner, s *Sandbox) { s.Repos = nil }, "you may not use any repository, and a session needs one"},
		{"another's repository", func(_ *mcptest.FakeRunner, s *Sandbox) { s.Repo = "theirs" }, "you may not use any repository, and a session needs one"},
	} {
		f := mcptest.NewFakeRunner()
		s := sandboxTool(f)
		tt.change(f, s)
		if text, isError := execSandbox(t, s, `{"args":["x"]}`); !isError || text != tt.want {
			t.Errorf("%s: error %t, %q", tt.name, isError, text)
		}
	}
	f := mcptest.NewFakeRunner()
	s := sandboxTool(f)
	s.Repo = "other"
	if _, isError := execSandbox(t, s, `{"args":["x"]}`); isError || f.Request.Repo != "other" {
		t.Errorf("error %t, in %q", isError, f.Request.Repo)
	}
}

// TestSandboxLarge: output whose JSON exceeds the maximum of a message is cut and marked; other output is whole.
func TestSandboxLarge(t *testing.T) {
	for _, tt := range []struct {
		unit  string
		whole bool
	}{{"x", true}, {"\n", true}, {"\"", true}, {"\xff", true}, {"é", true}, {"\x01", false}, {"x\x00", true}} {
		f := mcptest.NewFakeRunner()
		f.Stdout = strings.Repeat(tt.unit, 2<<20/len(tt.unit))
		text, isError := execSandbox(t, sandboxTool(f), `{"args":["x"]}`)
		var r sandboxReply
		if err := json.Unmarshal([]byte(text), &r); err != nil || isError {
			t.Fatalf("%q: %v, error %t", tt.unit, err, isError)
		}
		if marked := strings.HasSuffix(r.Stdout, "[truncated]"); marked == tt.whole || tt.whole && r.Stdout != tool.UTF8(f.Stdout) {
			t.Errorf("%q: marked %t, %d bytes", tt.unit, marked, len(r.Stdout))
		}
	}
}

// TestSandboxSchema: the schema has five properties, none of them required.
func TestSandboxSchema(t *testing.T) {
	d := (&Sandbox{}).Definition()
	in := mcptest.ReadSchema(t, d.Input)
	names := slices.Sorted(maps.Keys(in.Properties))
	if !slices.Equal(names, []string{"args", "command", "stdin", "timeout", "working_directory"}) || len(in.Required) > 0 || in.Type != "object" {
		t.Errorf("%q, required %q", names, in.Required)
	}
	if len(d.Description) > 2<<10 || d.ReadOnly || !d.Destructive || d.OpenWorld || d.Output != nil {
		t.Errorf("%d bytes, %+v", len(d.Description), d)
	}
	if !strings.Contains(string(d.Input), `"default":120`) {
		t.Errorf("%s", d.Input)
	}
}

// TestSandboxRepositories: a call reaches each repository of its caller, no other one, and no path above it.
func TestSandboxRepositories(t *testing.T) {
	for _, tt := range []struct{ arguments, want string }{
		{`{"command":"x","repoId":"nope"}`, "Repository nope not found"},
		{`{"command":"x","repoId":"other","working_directory":"../app"}`, `working_directory: "../app" is outside the repository`},
		{`{"command":"x","working_directory":"sub"}`, "working_directory must be an absolute path, got: sub"},
		{`{"command":"x","repository":"other"}`, `unknown argument "repository"`},
		{`{"command":"x","timeout":1,"timeoutMs":1000}`, "Cannot provide both 'timeout' (seconds) and 'timeoutMs' (milliseconds)."},
		{`{"command":"x","timeoutMs":0}`, "timeout must be at least 1 second."},
	} {
		f := mcptest.NewFakeRunner()
		if text, isError := execSandbox(t, sandboxTool(f), tt.arguments); !isError || !strings.HasPrefix(text, tt.want) || f.Request != nil {
			t.Errorf("%s: %q", tt.arguments, text)
		}
	}
	s := sandboxTool(mcptest.NewFakeRunner())
	s.Named = true
	if d := s.Definition(); !strings.Contains(d.Description, "repoId chooses one of the repositories app at /srv/app (default), other at /srv/other; it is a copy-on-write copy") {
		t.Errorf("two: %q", d.Description)
	}
	s.Repo = "other"
	if d := s.Definition(); !strings.Contains(d.Description, "app at /srv/app, other at /srv/other (default); it") {
		t.Errorf("a default: %q", d.Description)
	}
	s.Repos = []string{"other"}
	if d := s.Definition(); !strings.Contains(d.Description, "The repository is at /srv/other and is a copy-on-write copy") {
		t.Errorf("one: %q", d.Description)
	}
	s.Named = false
	if d := s.Definition(); strings.Contains(d.Description, "/srv") {
		t.Errorf("several callers: %q", d.Description)
	}
}

// TestSandboxWorkspaces: the description says whether commands change the real directory.
func TestSandboxWorkspaces(t *testing.T) {
	for _, tt := range []struct {
		name       string
		workspaces map[string]job.Workspace
		repo, want string
	}{
		{"the real one", map[string]job.Workspace{"app": job.Direct}, "app", "is the real directory, not a copy: what you change or delete in it"},
		{"read-only", map[string]job.Workspace{"app": job.ReadOnly}, "app", "is read-only."},
		{"several kinds", map[string]job.Workspace{"app": job.Direct}, "", "may be the real directory (direct), read-only, or a copy: ask the operator"},
		{"a copy", nil, "app", "is a copy-on-write copy"},
	} {
		s := sandboxTool(mcptest.NewFakeRunner())
		s.Workspaces, s.Repo = tt.workspaces, tt.repo
		if d := s.Definition(); !strings.Contains(d.Description, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, d.Description, tt.want)
		}
	}
	s := sandboxTool(mcptest.NewFakeRunner())
	s.Named, s.Repos = true, nil
	for n := range maxListed + 3 {
		s.Repos = append(s.Repos, fmt.Sprintf("repo%d", n))
	}
	if d := s.Definition(); !strings.Contains(d.Description, "repo7, and 3 more; it") || strings.Contains(d.Description, "repo8") {
		t.Errorf("many: %q", d.Description)
	}
}

// TestSandboxLearns: output that a reply does not have, because of a timeout or the output limit, is stored and indexed.
func TestSandboxLearns(t *testing.T) {
	for _, tt := range []struct {
		name   string
		stage  func(f *mcptest.FakeRunner, s *Sandbox)
		learns bool
	}{
		{"timeout", func(f *mcptest.FakeRunner, _ *Sandbox) {
			f.Result = job.Result{Status: job.Timeout, ExitCode: -1, Signal: 9}
		}, true},
		{"too much", func(_ *mcptest.FakeRunner, s *Sandbox) { s.OutputLimit = 4 }, true},
		{"success", func(*mcptest.FakeRunner, *Sandbox) {}, false},
	} {
		f := mcptest.NewFakeRunner()
		s := sandboxTool(f)
		f.Stdout = "written before"
		tt.stage(f, s)
		store := mcptest.Store(t)
		var learned string
		s.Outputs = store
		s.Learn = func(ctx context.Context, ran run.State) {
			var b strings.Builder
			if err := store.Stream(ctx, artifact.Reader{Principal: ran.Caller.Principal}, ran.Output.Handle, artifact.Stdout, &b); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			learned = b.String()
		}
		_, _ = execSandbox(t, s, `{"command":"x"}`)
		if want := map[bool]string{true: f.Stdout}[tt.learns]; learned != want {
			t.Errorf("%s: %q", tt.name, learned)
		}
	}
}
