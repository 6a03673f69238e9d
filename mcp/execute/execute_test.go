package execute

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"corral/internal/strictjson"
	"corral/internal/test/mcptest"
	"corral/job"
	"corral/mcp/tool"
	"corral/store/artifact"
)

func executeTool(f *mcptest.FakeRunner, s *artifact.Store) *Execute {
	return &Execute{
		Engine:  &job.Engine{Policy: f, Runner: f, Auditor: f},
		Outputs: s, Repos: []string{"app", "other"}, Paths: map[string]string{"app": "/srv/app"},
	}
}

// TestExecuteWords: other words for the same are accepted, and absolute directories of the repository.
func TestExecuteWords(t *testing.T) {
	for _, tt := range []struct{ arguments, runtime, dir string }{
		{`"runtime":"javascript"`, "node", "."},
		{`"runtime":"Bash","cwd":"sub"`, "shell", "sub"},
		{`"runtime":"py","working_directory":"/srv/app/sub/"`, "python", "sub"},
		{`"runtime":"python3","cwd":"/srv/app"`, "python", ""},
		{`"runtime":"shell","relativeCwd":"sub","timeout":2000`, "shell", "sub"},
	} {
		f := mcptest.NewFakeRunner()
		mcptest.CallTool(t, mcptest.AsUser(t.Context()), executeTool(f, nil), `{"repoId":"app","code":"x",`+tt.arguments+`}`)
		if r := f.Request; r == nil || r.Runtime != tt.runtime || r.Dir != tt.dir {
			t.Errorf("%s: %+v", tt.arguments, r)
		} else if strings.Contains(tt.arguments, "timeout") && r.Limits.Wall != 2*time.Second {
			t.Errorf("%s: %s", tt.arguments, r.Limits.Wall)
		}
	}
}

// TestExecuteTimeouts: the schema has the operator's timeouts, and a call without one has that of its repository.
func TestExecuteTimeouts(t *testing.T) {
	f := mcptest.NewFakeRunner()
	e := executeTool(f, nil)
	e.Timeouts = func(id string) (usual, longest time.Duration) {
		if id == "other" {
			return 5 * time.Second, 30 * time.Second
		}
		return time.Minute, 2 * time.Minute
	}
	if got := string(e.Definition().Input); !strings.Contains(got, `"timeoutMs":{"type":"integer","minimum":100,"maximum":120000}`) {
		t.Errorf("two repositories: %s", got)
	}
	mcptest.CallTool(t, mcptest.AsUser(t.Context()), e, `{"repoId":"other","runtime":"shell","code":"x"}`)
	if f.Request.Usual.Wall != 5*time.Second {
		t.Errorf("%+v", f.Request.Usual)
	}
	e.Repos = []string{"other"}
	if got := string(e.Definition().Input); !strings.Contains(got, `"timeoutMs":{"type":"integer","default":5000,"minimum":100,"maximum":30000}`) {
		t.Errorf("one repository: %s", got)
	}
}

// TestExecuteRequest: arguments become the engine's request.
func TestExecuteRequest(t *testing.T) {
	f := mcptest.NewFakeRunner()
	mcptest.CallTool(t, mcptest.AsUser(t.Context()), executeTool(f, nil), `{"repoId":"app","runtime":"python","executable":"python3","args":["a","b"],"code":"x","stdin":"in",
		"relativeCwd":"sub","timeoutMs":2500}`)
	code := "x"
	want := &job.Request{
		Tool: "runtime_execute", Principal: "user:ada", Session: "s1", ID: strings.Repeat("ab", 16), Repo: "app",
		Runtime: "python", Executable: "python3", Args: []string{"a", "b"}, Code: &code, Stdin: "in", Dir: "sub",
		Limits: job.Limits{Wall: 2500 * time.Millisecond}, Usual: job.Limits{Wall: time.Minute},
	}
	if !reflect.DeepEqual(f.Request, want) || f.Stdin != "in" {
		t.Errorf("got %+v, %q", f.Request, f.Stdin)
	}
	mcptest.CallTool(t, mcptest.AsUser(t.Context()), executeTool(f, nil), `{"repoId":"app","runtime":"go","args":["version"],"code":""}`)
	if r := f.Request; r.Code != nil || r.Dir != "." || r.Limits != (job.Limits{}) || r.Usual.Wall != time.Minute {
		t.Errorf("got %+v", r)
	}
}

// TestExecuteErrors: calls that the tool itself rejects.
func TestExecuteErrors(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, tt := range []struct{ arguments, code, argument, want string }{
		{`{"runtime":"shell","code":"x"}`, tool.CodeInvalid, "repoId", "required"},
		{`{"repoId":"app","code":"x"}`, tool.CodeInvalid, "runtime", "required"},
		{`{"repoId":"app","runtime":"cobol","code":"x"}`, tool.CodeInvalid, "runtime", "is not one of: node, typescript"},
		{`{"repoId":"app","runtime":"pyton","code":"x"}`, tool.CodeInvalid, "runtime", `(did you mean "python"?)`},
		{`{"repoId":"app","runtime":"pytest","code":"x"}`, tool.CodeInvalid, "runtime", `use runtime "python" with args ["-m","pytest"], or runtime "shell" with code "python3 -m pytest"`},
		{`{"repoId":"app","runtime":"npm","code":"x"}`, tool.CodeInvalid, "runtime", `use runtime "shell" with code "npm …"`},
		{`{"repoId":"app","runtime":"shell","code":"x","cwd":"/etc"}`, tool.CodeInvalid, "cwd", `"/etc" is outside the repository, /srv/app`},
		{`{"repoId":"app","runtime":"shell","code":"x","cwd":"../x"}`, tool.CodeInvalid, "cwd", `"../x" is outside the repository`},
		{`{"repoId":"app","runtime":"shell","code":"x","cwd":"a","working_directory":"b"}`, tool.CodeInvalid, "working_directory", "means the same as cwd"},
		{`{"repoId":"app","runtime":"shell","code":"x","cwd":"a","relativeCwd":"b"}`, tool.CodeInvalid, "cwd", "means the same as relativeCwd"},
		{`{"repoId":"app","runtime":"shell","code":"x","timeoutMs":500,"timeout":500}`, tool.CodeInvalid, "timeout", "means the same as timeoutMs"},
		{`{"repoId":"app","runtime":"shell","code":"x","timeout":30}`, tool.CodeInvalid, "timeout", "30 is out of range: 100 to 600000"},
		{`{"repoId":"app","runtime":"shell"}`, tool.CodeInvalid, "code", "code or args is required"},
		{`{"repoId":"app","runtime":"shell","args":[]}`, tool.CodeInvalid, "code", "code or args is required"},
		{`{"repoId":"app","runtime":"python","executable":"python3","code":""}`, tool.CodeInvalid, "code", "code or args is required"},
		{`{"repoId":"app","runtime":"shell","code":"x","args":["\u0000"]}`, tool.CodeInvalid, "args[0]", "NUL"},
		{`{"repoId":"app","runtime":"shell","code":"` + long + `x"}`, tool.CodeInvalid, "code", "the maximum is 1048576"},
		{`{"repoId":"app","runtime":"shell","code":"x","stdin":"` + long[:1<<19] + `x"}`, tool.CodeInvalid, "stdin", "the maximum is 524288"},
		{`{"repoId":"app","runtime":"shell","code":"x","relativeCwd":"a\u0000"}`, tool.CodeInvalid, "relativeCwd", "NUL"},
		{`{"repoId":"app","runtime":"shell","code":"x","env":{}}`, tool.CodeInvalid, "env", "unknown argument"},
		{`{"repoId":"nope","runtime":"shell","code":"x"}`, tool.CodeNotFound, "", "Repository nope not found"},
	} {
		f := mcptest.NewFakeRunner()
		v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), executeTool(f, nil), tt.arguments)
		message, _ := v["message"].(string)
		details, _ := v["details"].(map[string]any)
		argument, _ := details["argument"].(string)
		if v["code"] != tt.code || argument != tt.argument || !strings.Contains(message, tt.want) || !r.IsError || f.Request != nil {
			t.Errorf("%.90s: %v, want %s %s %q", tt.arguments, v, tt.code, tt.argument, tt.want)
		}
	}
}

// TestMaximumSizesAreAccepted: arguments of the maximum size are accepted.
func TestMaximumSizesAreAccepted(t *testing.T) {
	f := mcptest.NewFakeRunner()
	code, stdin := strings.Repeat("x", 1<<20), strings.Repeat("y", 1<<19)
	arguments, err := json.Marshal(map[string]any{
		"repoId": "app", "runtime": "shell", "code": code, "stdin": stdin, "args": slices.Repeat([]string{"a"}, 100),
		"queryTerms": slices.Repeat([]string{"t"}, 10), "timeoutMs": 600_000, "maxResponseLines": 1000, "outputMode": "intent",
	})
	if err != nil {
		t.Fatal(err)
	}
	v, _ := mcptest.CallTool(t, mcptest.AsUser(t.Context()), executeTool(f, nil), string(arguments))
	if v["status"] != "success" || *f.Request.Code != code || f.Stdin != stdin {
		t.Errorf("%v", v)
	}
}

// TestOtherRepositoriesAreNotFound: repositories that the principal may not use are not found.
func TestOtherRepositoriesAreNotFound(t *testing.T) {
	f := mcptest.NewFakeRunner()
	ctx := tool.WithCaller(t.Context(), tool.Caller{Principal: "token:ci", Session: "s", Repos: []string{"other"}, Progress: func(float64, string) {}})
	v, _ := mcptest.CallTool(t, ctx, executeTool(f, nil), `{"repoId":"app","runtime":"shell","code":"x"}`)
	if v["code"] != tool.CodeNotFound || v["message"] != "Repository app not found" {
		t.Errorf("%v", v)
	}
	if v, _ = mcptest.CallTool(t, ctx, executeTool(f, nil), `{"repoId":"other","runtime":"shell","code":"x"}`); v["status"] != "success" {
		t.Errorf("%v", v)
	}
	if v, _ = mcptest.CallTool(t, t.Context(), executeTool(f, nil), `{"repoId":"app","runtime":"shell","code":"x"}`); v["code"] != tool.CodeNotFound {
		t.Errorf("without a caller: %v", v)
	}
}

// TestExecuteReplies: the replies of the contract.
func TestExecuteReplies(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(f *mcptest.FakeRunner)
		want    string // JSON with the differences from success; null is null, and "-" is absent
		isError bool
	}{
		{"success", func(*mcptest.FakeRunner) {}, `{"status":"success","exitCode":0,"signal":null,"durationMs":1500,"message":"-","limit":"-"}`, false},
		{"exit code", func(f *mcptest.FakeRunner) { f.Result.Status, f.Result.ExitCode = job.Failure, 3 }, `{"status":"failure","exitCode":3}`, false},
		{"signal", func(f *mcptest.FakeRunner) {
			f.Result.Status, f.Result.ExitCode, f.Result.Signal = job.Failure, -1, int(syscall.SIGTERM)
		}, `{"status":"failure","exitCode":null,"signal":"SIGTERM"}`, false},
		{"real-time signal", func(f *mcptest.FakeRunner) { f.Result.Status, f.Result.ExitCode, f.Result.Signal = job.Failure, -1, 40 }, `{"signal":"SIG40"}`, false},
		{"memory", func(f *mcptest.FakeRunner) {
			f.Result.Status, f.Result.ExitCode, f.Result.Signal, f.Result.Limit = job.Failure, -1, 9, job.LimitMemory
		}, `{"status":"failure","exitCode":null,"signal":"SIGKILL","limit":"memory"}`, false},
		{"timeout", func(f *mcptest.FakeRunner) { f.Result.Status, f.Result.ExitCode, f.Result.Signal = job.Timeout, -1, 9 }, `{"status":"timeout","exitCode":null,"signal":"SIGKILL"}`, false},
		{"lost", func(f *mcptest.FakeRunner) { f.Result.Status, f.Result.ExitCode = job.Lost, -1 }, `{"status":"failure","exitCode":null,"message":"the jail ended while the job was running"}`, false},
		{
			"denied", func(f *mcptest.FakeRunner) {
				f.Decision.Rule, f.Decision.Reasons = "runtime", []string{`Runtime "node" is not allowed`}
			},
			`{"status":"denied","exitCode":null,"signal":null,"durationMs":0,"artifactHandle":null,"policyDecision":{"auditHash":"` + mcptest.SomeHash + `","deniedReasons":["Runtime \"node\" is not allowed"]}}`, true,
		},
		{"missing", func(f *mcptest.FakeRunner) { f.Decision.Missing = "no python3 in /usr/bin" }, `{"status":"failure","exitCode":127,"message":"no python3 in /usr/bin","artifactHandle":null}`, false},
		{
			"cwd escapes", func(f *mcptest.FakeRunner) {
				f.Err = &job.Refusal{Step: "cwd", Errno: int(syscall.EXDEV), Message: "x"}
			},
			`{"status":"denied","policyDecision":{"auditHash":"13b50c63066e9c0da1aa6d49b7ebca99ef0e2428a19967144258f7e9714c15c8",` +
				`"deniedReasons":["Relative CWD \".\" escapes repository root"]}}`, true,
		},
		{
			"cannot be executed", func(f *mcptest.FakeRunner) {
				f.Err = &job.Refusal{Step: "exec", Errno: int(syscall.EACCES), Message: "exec: permission denied"}
			},
			`{"status":"failure","exitCode":126,"message":"true cannot be executed: permission denied"}`, false,
		},
		{"sensitive", func(f *mcptest.FakeRunner) {
			f.Result.Sensitive, f.Result.SensitiveMore = []string{".git/config", "a\xffb"}, 2
		}, `{"sensitiveChanges":[".git/config","a\ufffdb"],"sensitiveChangesMore":2}`, false},
		{
			"supervisor", func(f *mcptest.FakeRunner) { f.Err = fmt.Errorf("%w: it closed the connection", job.ErrUnavailable) },
			`{"code":"UNAVAILABLE","message":"no supervisor: it closed the connection","status":"-"}`, true,
		},
		{
			"its refusal", func(f *mcptest.FakeRunner) { f.Err = &job.Refusal{Step: "jail", Message: "no room", Hint: "wait"} },
			`{"code":"INTERNAL","message":"no room","details":{"step":"jail","hint":"wait"}}`, true,
		},
		{"our own failure", func(f *mcptest.FakeRunner) { f.Err = errors.New("disk on fire") }, `{"code":"INTERNAL","message":"disk on fire"}`, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := mcptest.NewFakeRunner()
			tt.prepare(f)
			v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), executeTool(f, nil), `{"repoId":"app","runtime":"shell","code":"x"}`)
			var want map[string]any
			if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
				t.Fatal(err)
			}
			for key, value := range want {
				got, there := v[key]
				if value == "-" && there || value != "-" && (!there || !reflect.DeepEqual(got, value)) {
					t.Errorf("%s: %v, want %v", key, got, value)
				}
			}
			if r.IsError != tt.isError {
				t.Errorf("isError %v", r.IsError)
			}
		})
	}
}

// TestReplyKeys: the keys of a reply, in order.
func TestReplyKeys(t *testing.T) {
	for mode, want := range map[string][]string{
		"minimal": {"outputLines", "outputBytes", "stdout", "stderr"},
		"summary": {"stdoutSummary", "stderrSummary", "excerpts"},
		"intent":  {"excerpts"},
	} {
		f := mcptest.NewFakeRunner()
		f.Stdout, f.Stderr = "one\ntwo", "three\n"
		_, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), executeTool(f, mcptest.Store(t)), `{"repoId":"app","runtime":"shell","code":"x","queryTerms":["T"],"outputMode":"`+mode+`"}`)
		raw, err := json.Marshal(r.Structured)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range strictjson.Entries(raw) {
			got = append(got, e.Key)
		}
		want = slices.Concat([]string{"status", "exitCode", "signal", "durationMs"}, want, []string{"artifactHandle", "truncation", "policyDecision", "usage"})
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", mode, got, want)
		}
	}
}

// TestOutputModes: the output that each mode shows.
func TestOutputModes(t *testing.T) {
	numbered := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "line %d\n", i+1)
		}
		return b.String()
	}
	for _, tt := range []struct{ name, arguments, stdout, stderr, want string }{
		{"minimal", ``, "a\nb", "c\n", `{"outputLines":3,"outputBytes":5}`},
		{"nothing", ``, "", "", `{"outputLines":0,"outputBytes":0}`},
		{"summary", `,"outputMode":"summary"`, "a\nb", "c\n", `{"stdoutSummary":"a\nb","stderrSummary":"c\n"}`},
		{
			"cut", `,"outputMode":"summary","maxResponseLines":10`, numbered(12), numbered(12),
			`{"stdoutSummary":"` + strings.ReplaceAll(numbered(5), "\n", `\n`) + `\n... (2 lines omitted) ...\n\nline 8\nline 9\nline 10\nline 11\nline 12\n","stderrSummary":"line 11\nline 12\n"}`,
		},
		{
			"terms", `,"outputMode":"summary","queryTerms":["LINE 9"]`, numbered(9), "",
			`{"excerpts":[{"lineStart":6,"lineEnd":9,"content":"line 6\nline 7\nline 8\nline 9","source":"stdout"}]}`,
		},
		{
			"fallback", `,"outputMode":"summary","queryTerms":["none"]`, "a\n", "",
			`{"excerpts":[{"lineStart":1,"lineEnd":1,"content":"a","source":"stdout","fallback":true}]}`,
		},
		{
			"intent", `,"outputMode":"intent","queryTerms":["err"]`, "a\n", "an ERROR\n",
			`{"excerpts":[{"lineStart":1,"lineEnd":1,"content":"an ERROR","source":"stderr"}]}`,
		},
		{"intent without a match", `,"outputMode":"intent","queryTerms":["none"]`, "a\n", "", `{"excerpts":[]}`},
		{"intent without terms", `,"outputMode":"intent"`, "a\n", "", `{"excerpts":[]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := mcptest.NewFakeRunner()
			f.Stdout, f.Stderr = tt.stdout, tt.stderr
			v, _ := mcptest.CallTool(t, mcptest.AsUser(t.Context()), executeTool(f, mcptest.Store(t)), `{"repoId":"app","runtime":"shell","code":"x"`+tt.arguments+`}`)
			var want map[string]any
			if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
				t.Fatal(err)
			}
			for key, value := range want {
				if !reflect.DeepEqual(v[key], value) {
					t.Errorf("%s: %q, want %q", key, v[key], value)
				}
			}
			if handle, _ := v["artifactHandle"].(string); !strings.HasPrefix(handle, "runtime-app-") {
				t.Errorf("handle %q", v["artifactHandle"])
			}
		})
	}
}

// TestReasonWithoutArtifact: a reply without a handle has the reason, unless the call asked for none.
func TestReasonWithoutArtifact(t *testing.T) {
	f := mcptest.NewFakeRunner()
	v, _ := mcptest.CallTool(t, mcptest.AsUser(t.Context()), executeTool(f, mcptest.Store(t)), `{"repoId":"app","runtime":"shell","code":"x","persistOutput":false}`)
	if handle, there := v["artifactHandle"]; !there || handle != nil || v["artifactReason"] != nil {
		t.Errorf("%v", v)
	}
	v, _ = mcptest.CallTool(t, mcptest.AsUser(t.Context()), executeTool(f, nil), `{"repoId":"app","runtime":"shell","code":"x"}`)
	if v["artifactHandle"] != nil || v["artifactReason"] == nil {
		t.Errorf("%v", v)
	}
}

// TestUsage: values that the kernel does not provide are null, and those that few callers read are shown on request, and by the
// name of the other server's tool.
func TestUsage(t *testing.T) {
	lean := map[string]any{"wallMs": 1500.0, "cpuMs": 20.0, "peakMemoryBytes": 4096.0, "peakPids": nil}
	full := map[string]any{
		"wallMs": 1500.0, "cpuMs": 20.0, "userMs": 0.0, "systemMs": 0.0, "peakMemoryBytes": 4096.0, "peakPids": nil,
		"readBytes": 0.0, "writeBytes": 0.0, "queuedMs": 0.0,
	}
	for _, tt := range []struct {
		called, arguments string
		want              map[string]any
	}{
		{"runtime_execute", ``, lean},
		{"runtime_execute", `,"detail":"lean"`, lean},
		{"runtime_execute", `,"detail":"full"`, full},
		{"sdl.runtime.execute", ``, full},
	} {
		caller := tool.CallerOf(mcptest.AsUser(t.Context()))
		caller.Called = tt.called
		v, _ := mcptest.CallTool(t, tool.WithCaller(t.Context(), caller), executeTool(mcptest.NewFakeRunner(), nil), `{"repoId":"app","runtime":"shell","code":"x"`+tt.arguments+`}`)
		usage, _ := v["usage"].(map[string]any)
		if queued, ok := usage["queuedMs"].(float64); ok && queued >= 0 {
			usage["queuedMs"] = 0.0 // the time until the job was admitted, which is what the machine makes it
		}
		if !reflect.DeepEqual(usage, tt.want) {
			t.Errorf("%s %s: %v", tt.called, tt.arguments, usage)
		}
	}
}

// TestJobCancelled: the cancellation of a call ends the job.
func TestJobCancelled(t *testing.T) {
	f := mcptest.NewFakeRunner()
	f.During = func(ctx context.Context) { <-ctx.Done() }
	f.Result = job.Result{Status: job.Cancelled, ExitCode: -1, Signal: 9}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel)
	v, r := mcptest.CallTool(t, mcptest.AsUser(ctx), executeTool(f, nil), `{"repoId":"app","runtime":"shell","code":"x"}`)
	if v["status"] != "cancelled" || v["exitCode"] != nil || r.IsError {
		t.Errorf("%v", v)
	}
}

// TestJobReportsProgress: progress has the elapsed time and the bytes of output.
func TestJobReportsProgress(t *testing.T) {
	f := mcptest.NewFakeRunner()
	f.Stdout = "twelve bytes"
	told := make(chan string, 16)
	f.During = func(context.Context) { <-told }
	target := executeTool(f, nil)
	target.Engine = &job.Engine{Policy: f, Runner: f, Auditor: f, Every: time.Millisecond}
	ctx := tool.WithCaller(t.Context(), tool.Caller{Principal: "user:ada", Session: "s", Progress: func(p float64, message string) {
		if strings.Contains(message, "12 bytes of output so far") && p > 0 {
			select {
			case told <- message:
			default:
			}
		}
	}})
	if v, _ := mcptest.CallTool(t, ctx, target, `{"repoId":"app","runtime":"shell","code":"x"}`); v["status"] != "success" {
		t.Errorf("%v", v)
	}
}

// TestLongReplyText: a reply whose JSON is too long to be repeated has a text of its own.
func TestLongReplyText(t *testing.T) {
	f := mcptest.NewFakeRunner()
	f.Stdout = strings.Repeat("a long line\n", 900)
	v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), executeTool(f, mcptest.Store(t)), `{"repoId":"app","runtime":"shell","code":"x","outputMode":"summary","maxResponseLines":1000}`)
	for _, want := range []string{"status: success", "exit code 0", "stdout 10800 bytes", v["artifactHandle"].(string)} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("no %q in %q", want, r.Text)
		}
	}
}

// TestDefinitions: the published definitions.
func TestDefinitions(t *testing.T) {
	for _, target := range []tool.Tool{&Execute{}, &QueryOutput{}} {
		d := target.Definition()
		if len(d.Description) > 2<<10 || d.Title == "" || d.Name != target.Name() {
			t.Errorf("%s: %d bytes of description, title %q", d.Name, len(d.Description), d.Title)
		}
		in, out := mcptest.ReadSchema(t, d.Input), mcptest.ReadSchema(t, d.Output)
		if in.Type != "object" || out.Type != "object" || len(out.Required) > 0 {
			t.Errorf("%s: %+v %+v", d.Name, in, out)
		}
		for _, e := range []*tool.Error{{Code: tool.CodeInternal, Message: "x"}, {Code: tool.CodeInvalid, Message: "x", Details: map[string]any{"argument": "y"}}} {
			var v map[string]any
			raw, _ := json.Marshal(e)
			if err := json.Unmarshal(raw, &v); err != nil {
				t.Fatal(err)
			}
			mcptest.CheckReply(t, target, v)
		}
	}
	in := mcptest.ReadSchema(t, (&Execute{}).Definition().Input)
	if !slices.Equal(in.Required, []string{"repoId", "runtime"}) || len(in.Properties) != 13 {
		t.Errorf("%q, %d properties", in.Required, len(in.Properties))
	}
	d := (&Execute{}).Definition()
	if d.ReadOnly || !d.Destructive || d.Idempotent || d.OpenWorld {
		t.Errorf("%+v", d)
	}
}
