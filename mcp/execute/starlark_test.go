package execute

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"corral/internal/strictjson"
	"corral/internal/test/mcptest"
	"corral/job"
	"corral/mcp/tool"
	"corral/policy/starlark"
)

func starlarkTool(f *mcptest.FakeRunner) *Starlark {
	return &Starlark{Engine: &job.Engine{Policy: f, Runner: f, Auditor: f}, Repos: []string{"app", "other"}}
}

// TestStarlarkArguments: calls that the tool itself rejects, before the policy is consulted.
func TestStarlarkArguments(t *testing.T) {
	long := strings.Repeat("x", 256<<10)
	for _, tt := range []struct{ arguments, argument, want string }{
		{`{}`, "source", "source: is required"},
		{`{"input":"x"}`, "source", "source: is required"},
		{`{"source":"` + long + `x"}`, "source", "source: has 262145 bytes, the maximum is 262144"},
		{`{"source":"","input":"` + strings.Repeat(long, 16) + `x"}`, "input", "input: has 4194305 bytes, the maximum is 4194304"},
		{`{"source":"","limits":{"wall_ms":0}}`, "limits.wall_ms", "limits.wall_ms: 0 is out of range: 1 to 60000"},
		{`{"source":"","limits":{"output_kb":1025}}`, "limits.output_kb", "limits.output_kb: 1025 is out of range: 1 to 1024"},
		{`{"source":"","limits":{"memory_mb":1}}`, "limits.memory_mb", `unknown argument "limits.memory_mb"`},
		{`{"source":"","limits":{"wall":1}}`, "limits.wall", `unknown argument "limits.wall": did you mean "limits.wall_ms"?`},
		{`{"source":"","caps":{"net":true}}`, "caps.net", `unknown argument "caps.net"`},
		{`{"source":"","code":"x"}`, "code", `unknown argument "code"`},
		{`{"source":"","repoId":"app"}`, "repoId", `unknown argument "repoId"`},
	} {
		f := mcptest.NewFakeRunner()
		v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), starlarkTool(f), tt.arguments)
		details, _ := v["details"].(map[string]any)
		argument, _ := details["argument"].(string)
		if v["code"] != "INVALID_REQUEST" || v["message"] != tt.want || argument != tt.argument || !r.IsError || f.Request != nil {
			t.Errorf("%.90s: %.300v", tt.arguments, v)
		}
	}
}

// TestStarlarkRequest: arguments become the engine's request.
func TestStarlarkRequest(t *testing.T) {
	source, input := strings.Repeat("#", 256<<10), strings.Repeat("y", 4<<20)
	for _, tt := range []struct {
		arguments string
		want      job.Request
	}{
		{`{"source":"emit('x')"}`, job.Request{Output: 64 << 10}},
		{`{"source":"","input":"","limits":{},"caps":{}}`, job.Request{Output: 64 << 10}},
		{`{"source":"x","input":"in","limits":{"wall_ms":1000,"output_kb":1}}`, job.Request{Stdin: "in", Output: 1 << 10, Limits: job.Limits{Wall: time.Second}}},
		{`{"source":"x","limits":{"wall_ms":60000,"output_kb":1024.0}}`, job.Request{Output: 1 << 20, Limits: job.Limits{Wall: time.Minute}}},
		{`{"source":"` + source + `","input":"` + input + `"}`, job.Request{Stdin: input, Output: 64 << 10}},
	} {
		f := mcptest.NewFakeRunner()
		if v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), starlarkTool(f), tt.arguments); r.IsError {
			t.Errorf("%.90s: %v", tt.arguments, v)
			continue
		}
		var a struct{ Source string }
		if err := json.Unmarshal([]byte(tt.arguments), &a); err != nil {
			t.Fatal(err)
		}
		want := tt.want
		want.Tool, want.Principal, want.Session, want.ID = "starlark_run", "user:ada", "s1", strings.Repeat("ab", 16)
		want.Repo, want.Runtime, want.Code, want.Usual = "app", "starlark", &a.Source, job.Limits{Wall: time.Second}
		if !reflect.DeepEqual(*f.Request, want) || f.Stdin != want.Stdin {
			t.Errorf("%.90s: %.300v", tt.arguments, *f.Request)
		}
	}
}

// TestStarlarkReplies: each outcome of the contract.
func TestStarlarkReplies(t *testing.T) {
	ended := func(status job.Status, code int, limit string) job.Result {
		return job.Result{Status: status, ExitCode: code, Limit: limit, Usage: job.Usage{Wall: 12 * time.Millisecond}}
	}
	said := func(code, message, details string) string {
		return fmt.Sprintf(`{"code":%q,"message":%q%s}`+"\n", code, message, details)
	}
	failure := func(code, message string) string {
		return fmt.Sprintf(`{"code":%q,"message":%q}`, code, message)
	}
	const (
		mute   = "the interpreter failed, and did not say why"
		killed = "a signal ended the interpreter: neither the script nor a limit did"
		late   = "the script did not end within 1000 ms"
		memory = "the script needed more memory than it may have"
	)
	kib := strings.Repeat("x", 1<<10)
	for _, tt := range []struct {
		name           string
		result         job.Result
		stdout, stderr string
		want           string
	}{
		{"success", ended(job.Success, 0, ""), "out\n", "", `{"stdout":"out\n"}`},
		{"nothing emitted", ended(job.Success, 0, ""), "", "", `{"stdout":""}`},
		{"success with a failure report in stderr", ended(job.Success, 0, ""), "a", said("TIMEOUT", "x", ""), `{"stdout":"a"}`},
		{"a secret of the caller's own", ended(job.Success, 0, ""), "AKIAIOSFODNN7EXAMPLE", "", `{"stdout":"AKIAIOSFODNN7EXAMPLE"}`},
		{"no UTF-8", ended(job.Success, 0, ""), "a\xff\xe2\x82b", "", `{"stdout":"a` + strings.Repeat("\uFFFD", 3) + `b"}`},
		{"all that may be", ended(job.Success, 0, ""), kib, "", `{"stdout":"` + kib + `"}`},
		{"memory that was not needed", ended(job.Success, 0, "memory"), "a", "", `{"stdout":"a"}`},
		{
			"a mistake", ended(job.Failure, 1, ""), "", said("EVAL_ERROR", "oops", `,"details":{"position":"script.star:1:2","backtrace":"t\nu"}`),
			`{"code":"EVAL_ERROR","message":"oops","details":{"backtrace":"t\nu","position":"script.star:1:2"}}`,
		},
		{
			"a mistake after some output", ended(job.Failure, 1, ""), "so far", said("EVAL_ERROR", "oops", ""),
			`{"code":"EVAL_ERROR","message":"oops","details":{"stdout":"so far"}}`,
		},
		{"a timeout", ended(job.Failure, 1, ""), "so far", said("TIMEOUT", late, ""), failure("TIMEOUT", late)},
		{"timeout enforced by the supervisor", ended(job.Timeout, -1, ""), "so far", "", failure("TIMEOUT", late)},
		{
			"much output", ended(job.Failure, 1, ""), kib, said("OUTPUT_LIMIT", "the script emitted more than 1024 bytes", `,"details":{"position":"script.star:1:5"}`),
			`{"code":"OUTPUT_LIMIT","message":"the script emitted more than 1024 bytes","details":{"position":"script.star:1:5","stdout":"` + kib + `"}}`,
		},
		{
			"more output than the interpreter lets pass", ended(job.Success, 0, ""), kib[1:] + "é", "",
			`{"code":"OUTPUT_LIMIT","message":"the script emitted more than 1024 bytes","details":{"stdout":"` + kib[1:] + `"}}`,
		},
		{"memory", ended(job.Failure, 1, ""), "", said("MEMORY_LIMIT", memory, ""), failure("MEMORY_LIMIT", memory)},
		{"the kernel's memory", ended(job.Failure, -1, "memory"), "so far", "", failure("MEMORY_LIMIT", memory)},
		{"Go's memory", ended(job.Failure, 2, ""), "", "fatal error: runtime: out of memory\n", failure("MEMORY_LIMIT", memory)},
		{
			"Go's stack", ended(job.Failure, 2, ""), "so far", "runtime: goroutine stack exceeds\nfatal error: stack overflow\n",
			`{"code":"EVAL_ERROR","message":"the interpreter ended: values are nested too deeply","details":{"stdout":"so far"}}`,
		},
		{"another bound", ended(job.Failure, 1, ""), "", said("INVALID_REQUEST", "too long", ""), failure("INVALID_REQUEST", "too long")},
		{
			"a word of the library's first", ended(job.Failure, 1, ""), "so far",
			"2026/11/21 19:34:02 Starlark failed to allocate 4GB address space: cannot allocate memory.\n" + said("EVAL_ERROR", "oops", ""),
			`{"code":"EVAL_ERROR","message":"oops","details":{"stdout":"so far"}}`,
		},
		{"a signal", ended(job.Failure, -1, ""), "so far", "", failure("INTERNAL", killed)},
		{"ended from outside", ended(job.Cancelled, -1, ""), "so far", "", failure("INTERNAL", killed)},
		{"no failure report", ended(job.Failure, 1, ""), "so far", "", failure("INTERNAL", mute)},
		{"usage", ended(job.Failure, 2, ""), "", "corral-starlark: usage", failure("INTERNAL", "the interpreter ended with code 2: the script did not bring that about")},
		{
			"processes", ended(job.Failure, 2, "pids"), "", "runtime: failed to create new OS thread",
			failure("INTERNAL", "the interpreter may have no more threads: the limit on processes is too low"),
		},
		{"a code of its own", ended(job.Failure, 1, ""), "", said("ROOT", "x", ""), failure("INTERNAL", mute)},
		{"a key of its own", ended(job.Failure, 1, ""), "", `{"code":"TIMEOUT","message":"x","isError":false}`, failure("INTERNAL", mute)},
		{"two words", ended(job.Failure, 1, ""), "", said("TIMEOUT", "x", "") + said("TIMEOUT", "y", ""), failure("TIMEOUT", "y")},
		{"escapes for a terminal", ended(job.Failure, 1, ""), "", `{"code":"TIMEOUT","message":"\u001b[2J"}`, failure("INTERNAL", mute)},
		{"bidirectional override", ended(job.Failure, 1, ""), "", `{"code":"TIMEOUT","message":"\u202ex"}`, failure("INTERNAL", mute)},
		{"a long word", ended(job.Failure, 1, ""), "", said("TIMEOUT", strings.Repeat("x", 60<<10), ""), failure("INTERNAL", mute)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := mcptest.NewFakeRunner()
			f.Result, f.Stdout, f.Stderr = tt.result, tt.stdout, tt.stderr
			v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), starlarkTool(f), `{"source":"","limits":{"output_kb":1}}`)
			if raw := string(strictjson.Encode(r.Structured)); raw != tt.want || r.IsError != (v["stdout"] == nil) {
				t.Errorf("%.300s\nwant %.300s", raw, tt.want)
			}
		})
	}
}

// TestStarlarkRefused: the errors of programs that were not run.
func TestStarlarkRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(f *mcptest.FakeRunner, s *Starlark)
		want   string
	}{
		{"denied", func(f *mcptest.FakeRunner, _ *Starlark) {
			f.Decision.Rule, f.Decision.Reasons = "rules", []string{"not today", "nor tomorrow\xff"}
		}, `{"code":"DENIED","message":"not today; nor tomorrow` + "\uFFFD" + `","details":{"auditHash":"` + mcptest.SomeHash + `","rule":"rules"}}`},
		{"no interpreter", func(f *mcptest.FakeRunner, _ *Starlark) {
			f.Err = &job.Refusal{Step: "tool", Message: "it is not installed", Hint: "install it"}
		}, `{"code":"UNAVAILABLE","message":"it is not installed","details":{"hint":"install it","step":"tool"}}`},
		{"a broken interpreter", func(f *mcptest.FakeRunner, _ *Starlark) {
			f.Err = &job.Refusal{Step: "exec", Errno: 8, Message: "exec: exec format error"}
		}, `{"code":"INTERNAL","message":"true cannot be executed: exec format error"}`},
		{"no supervisor", func(f *mcptest.FakeRunner, _ *Starlark) {
			f.Err = fmt.Errorf("%w: it closed the connection", job.ErrUnavailable)
		}, `{"code":"UNAVAILABLE","message":"no supervisor: it closed the connection"}`},
		{"lost", func(f *mcptest.FakeRunner, _ *Starlark) { f.Result.Status = job.Lost }, `{"code":"UNAVAILABLE","message":"the run was interrupted: try again"}`},
		{"no repository", func(_ *mcptest.FakeRunner, s *Starlark) { s.Repos = nil }, `{"code":"NOT_FOUND","message":"you may not use any repository, and a run is accounted to one"}`},
		{"another's repository", func(_ *mcptest.FakeRunner, s *Starlark) { s.Repo = "theirs" }, `{"code":"NOT_FOUND","message":"you may not use any repository, and a run is accounted to one"}`},
	} {
		f := mcptest.NewFakeRunner()
		s := starlarkTool(f)
		tt.change(f, s)
		if _, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), s, `{"source":""}`); string(strictjson.Encode(r.Structured)) != tt.want || !r.IsError {
			t.Errorf("%s: %s", tt.name, strictjson.Encode(r.Structured))
		}
	}
	f := mcptest.NewFakeRunner()
	s := starlarkTool(f)
	s.Repo = "other"
	if _, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), s, `{"source":""}`); r.IsError || f.Request.Repo != "other" {
		t.Errorf("%v, accounted to %q", r.Structured, f.Request.Repo)
	}
}

// TestStarlarkOutputLimitEndsJob: an interpreter under the program's control that never stops writing is ended.
func TestStarlarkOutputLimitEndsJob(t *testing.T) {
	for _, stderr := range []bool{false, true} {
		f := mcptest.NewFakeRunner()
		f.Stdout = strings.Repeat("y\n", 2<<20)
		if stderr {
			f.Stdout, f.Stderr = "", f.Stdout
		}
		f.Result = job.Result{Status: job.Cancelled, ExitCode: -1}
		f.During = func(ctx context.Context) { <-ctx.Done() }
		v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), starlarkTool(f), `{"source":""}`)
		details, _ := v["details"].(map[string]any)
		if stdout, _ := details["stdout"].(string); v["code"] != "OUTPUT_LIMIT" || !r.IsError || len(stdout) > 64<<10 {
			t.Errorf("%.300v", v)
		}
	}
}

// TestStarlarkCancelled: a cancelled call gets no response, and the job ends.
func TestStarlarkCancelled(t *testing.T) {
	f := mcptest.NewFakeRunner()
	ctx, cancel := context.WithCancel(mcptest.AsUser(t.Context()))
	f.During = func(ctx context.Context) {
		cancel()
		<-ctx.Done()
	}
	f.Result = job.Result{Status: job.Cancelled, ExitCode: -1}
	if r, err := starlarkTool(f).Call(ctx, json.RawMessage(`{"source":""}`)); err == nil {
		t.Errorf("%+v", r)
	}
}

// TestStarlarkTexts: the text block is the JSON of a short reply, and refers to structuredContent for a long one.
func TestStarlarkTexts(t *testing.T) {
	for n, want := range map[int]string{
		3: `{"stdout":"xxx"}`, 1 << 20: "1048576 bytes were emitted: they are in structuredContent.stdout",
	} {
		f := mcptest.NewFakeRunner()
		f.Stdout = strings.Repeat("x", n)
		r := callThroughServer(t, starlarkTool(f), "code.sandbox.starlark.run", `{"source":"","limits":{"output_kb":1024}}`)
		var reply starlarkReply
		if err := json.Unmarshal(r.Structured, &reply); err != nil || r.Content[0].Text != want || reply.Stdout != f.Stdout {
			t.Errorf("%v, %.300s", err, r.Content[0].Text)
		}
	}
}

// TestStarlarkDefinition: the description is within the limit, its example works, and the tool is declared read-only.
func TestStarlarkDefinition(t *testing.T) {
	d := (&Starlark{}).Definition()
	in := mcptest.ReadSchema(t, d.Input)
	names := slices.Sorted(maps.Keys(in.Properties))
	if !slices.Equal(names, []string{"caps", "input", "limits", "source"}) || !slices.Equal(in.Required, []string{"source"}) {
		t.Errorf("%q, required %q", names, in.Required)
	}
	if len(d.Description) > 2<<10 || !d.ReadOnly || d.Destructive || !d.Idempotent || d.OpenWorld || d.Dotted != "code.sandbox.starlark.run" {
		t.Errorf("%d bytes, %+v", len(d.Description), d)
	}
	for _, want := range []string{
		fmt.Sprintf(`"default":%d`, DefaultStarlarkWall.Milliseconds()), fmt.Sprintf(`"maximum":%d`, starlark.MaxWall.Milliseconds()),
		fmt.Sprintf(`"default":%d`, DefaultStarlarkOutput), fmt.Sprintf(`"maximum":%d`, starlark.MaxOutput>>10),
		fmt.Sprintf(`"maxLength":%d`, starlark.MaxScript), fmt.Sprintf(`"maxLength":%d`, starlark.MaxInput),
		`"caps":{"type":"object","description":"must be empty","additionalProperties":false}`,
	} {
		if !strings.Contains(string(d.Input), want) {
			t.Errorf("no %s in %s", want, d.Input)
		}
	}
	_, example, _ := strings.Cut(d.Description, "Example: ")
	call, rest, _ := strings.Cut(example, " returns ")
	says, _, _ := strings.Cut(rest, ".\n")
	var a struct{ Source, Input string }
	var want starlarkReply
	if err := errors.Join(json.Unmarshal([]byte(call), &a), json.Unmarshal([]byte(says), &want)); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if f := starlark.Exec(t.Context(), []byte(a.Source), strings.NewReader(a.Input), &out, starlark.Bounds{Output: 1 << 10, Wall: time.Minute}); f != nil {
		t.Fatal(f)
	}
	if out.String() != want.Stdout {
		t.Errorf("the example gives %q, not %q", out.String(), want.Stdout)
	}
}

// FuzzStarlarkReply: for any output of the job the reply is bounded text, and an error has one of the tool's codes.
func FuzzStarlarkReply(f *testing.F) {
	f.Add([]byte("out"), []byte(`{"code":"TIMEOUT","message":"x"}`), 1, uint8(0))
	f.Add([]byte("\xff"), []byte(`{"code":"EVAL_ERROR","message":"x","details":{"position":"a"}}`), 1, uint8(0))
	f.Add([]byte(strings.Repeat("é", 600)), []byte(`{`), 0, uint8(1))
	f.Fuzz(func(t *testing.T, stdout, stderr []byte, exit int, status uint8) {
		all := []job.Status{job.Success, job.Failure, job.Timeout, job.Cancelled}
		s := mcptest.NewFakeRunner()
		s.Stdout, s.Stderr = string(stdout), string(stderr)
		s.Result = job.Result{Status: all[int(status)%len(all)], ExitCode: exit}
		r, err := starlarkTool(s).Call(mcptest.AsUser(t.Context()), json.RawMessage(`{"source":"","limits":{"output_kb":1}}`))
		raw := strictjson.Encode(r.Structured)
		if err != nil {
			e := tool.AsError(err)
			if !slices.Contains([]string{tool.CodeTimeout, tool.CodeOutputLimit, tool.CodeEval, tool.CodeMemoryLimit, tool.CodeInvalid, tool.CodeInternal}, e.Code) {
				t.Errorf("%+v", e)
			}
			raw = strictjson.Encode(e)
		}
		if !utf8.Valid(raw) || len(raw) > 64<<10 {
			t.Errorf("%d bytes: %.200q", len(raw), raw)
		}
	})
}
