package rpc

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"corral/internal/jsonrpc"
	"corral/job"
)

// TestInitialize checks that initialize must be the first request and cannot be repeated.
func TestInitialize(t *testing.T) {
	w := &world{run: shell}
	p := dial(t, w.server())
	go p.read()
	for _, tt := range []struct{ method, params, want string }{
		{"command/exec", `{"command":["true"]}`, `"code":-32600,"message":"Not initialized"`},
		{"nonsense", `{}`, `"code":-32600,"message":"Not initialized"`},
		{"initialize", `{}`, "\"code\":-32600,\"message\":\"Invalid request: missing field `clientInfo`\""},
		{"initialize", `{"clientInfo":{}}`, "\"code\":-32600,\"message\":\"Invalid request: missing field `name`\""},
		{"initialize", `{"clientInfo":[]}`, "Invalid request: `clientInfo` must be an object, got an array"},
		{"initialize", `{"clientInfo":{"name":"x"},"capabilities":{"optOutNotificationMethods":"y"}}`, "must be an array of strings, got a string"},
		{
			"initialize", `{"clientInfo":{"name":"a b","title":null,"version":"1"},"capabilities":null}`,
			`"result":{"userAgent":"corral/1.2.3 (linux) ab","codexHome":"/srv/app","platformFamily":"unix","platformOs":"linux"}`,
		},
		{"initialize", `{"clientInfo":{"name":"x"}}`, `"code":-32600,"message":"Already initialized"`},
		{"nonsense", `{}`, "\"code\":-32600,\"message\":\"Invalid request: unknown method `nonsense`\""},
	} {
		if m := p.answer(p.ask(tt.method, tt.params)); !strings.Contains(m.raw, tt.want) {
			t.Errorf("%s %s: %s, want %s", tt.method, tt.params, m.raw, tt.want)
		}
	}
	if len(w.reqs) != 0 {
		t.Errorf("requests reached the policy: %+v", w.reqs)
	}
}

// TestOptOut checks that notifications the client opted out of are not sent, and that nothing else changes.
func TestOptOut(t *testing.T) {
	w := &world{run: shell}
	p := dial(t, w.server())
	go p.read()
	p.must("initialize", `{"clientInfo":{"name":"x"},"capabilities":{"optOutNotificationMethods":["command/exec/outputDelta","x"]}}`)
	r := p.result(p.ask("command/exec", `{"command":["echo","x"],"processId":"a","streamStdoutStderr":true}`))
	if *r.ExitCode != 0 || *r.Stdout != "" {
		t.Errorf("%+v", r)
	}
	p.must("process/spawn", `{"command":["echo","x"],"processHandle":"a","cwd":"/srv/app","streamStdoutStderr":true}`)
	p.until("end", func(m arrival) bool { return m.Method == "process/exited" })
	if _, n, _ := p.output("a", "stdout"); n != 1 {
		t.Errorf("%d deltas", n)
	}
}

// TestErrors covers each error in docs/interfaces/command_exec.md.
func TestErrors(t *testing.T) {
	const denied = `"code":-32600,"message":"command/exec denied: not today"`
	w := &world{run: shell, deny: denials}
	p := initialized(t, w.server())
	p.ask("command/exec", `{"command":["sleep"],"processId":"p2"}`)
	p.must("process/spawn", `{"command":["sleep"],"processHandle":"h2","cwd":"/srv/app"}`)
	for _, tt := range []struct{ method, params, want string }{
		{"command/exec", `{}`, "\"code\":-32600,\"message\":\"Invalid request: missing field `command`\""},
		{"command/exec", `{"command":null}`, "\"code\":-32600,\"message\":\"Invalid request: missing field `command`\""},
		{"command/exec", `{"command":"true"}`, "\"code\":-32600,\"message\":\"Invalid request: `command` must be an array of strings, got a string\""},
		{"command/exec", `{"command":["true",1]}`, "\"code\":-32600,\"message\":\"Invalid request: `command[1]` must be a string, got 1\""},
		{"command/exec", `{"command":["true"],"tty":"yes"}`, "\"code\":-32600,\"message\":\"Invalid request: `tty` must be a boolean, got a string\""},
		{"command/exec", `{"command":["true"],"timeoutMs":1.5}`, "Invalid request: `timeoutMs` must be"},
		{"command/exec", `{"command":["true"],"timeoutMs":"1"}`, "Invalid request: `timeoutMs` must be"},
		{"command/exec", `{"command":["true"],"outputBytesCap":-1}`, "Invalid request: `outputBytesCap` must be"},
		{"command/exec", `{"command":["true"],"processId":7}`, "Invalid request: `processId` must be a string, got 7"},
		{"command/exec", `{"command":["true"],"cwd":[]}`, "Invalid request: `cwd` must be a string, got an array"},
		{"command/exec", `{"command":["true"],"env":[]}`, "Invalid request: `env` must be an object of strings, got an array"},
		{"command/exec", `{"command":["true"],"env":{"A":1}}`, "Invalid request: `env.A` must be a string or null, got 1"},
		{"command/exec", `{"command":["true"],"size":3}`, "Invalid request: `size` must be an object, got 3"},
		{"command/exec", `{"command":["true"],"tty":true,"processId":"x","size":{"rows":1}}`, "Invalid request: missing field `cols`"},
		{"command/exec", `{"command":["true"],"tty":true,"processId":"x","size":{"rows":1,"cols":65536}}`, "Invalid request: `cols` must be"},
		{"command/exec", `{"command":["true"],"sandboxPolicy":{}}`, "Invalid request: missing field `type`"},
		{"command/exec", `{"command":["true"],"sandboxPolicy":"readOnly"}`, "Invalid request: `sandboxPolicy` must be an object, got a string"},
		{"command/exec", `{"command":["true"],"sandboxPolicy":{"type":"none"}}`, "Invalid request: unknown type `none` of `sandboxPolicy`: use readOnly or workspaceWrite"},
		{"command/exec", `{"command":["true"],"sandboxPolicy":{"type":"workspaceWrite","writableRoots":"/x"}}`, "Invalid request: `sandboxPolicy.writableRoots` must be"},
		{"command/exec", `[]`, "\"code\":-32600,\"message\":\"Invalid request: `params` must be an object, got an array\""},
		{"command/exec", `{"command":[]}`, `"code":-32600,"message":"command must not be empty"`},
		{"command/exec", `{"command":["true"],"tty":true}`, `"code":-32600,"message":"command/exec tty or streaming requires a client-supplied processId"`},
		{"command/exec", `{"command":["true"],"streamStdin":true}`, `"code":-32600,"message":"command/exec tty or streaming requires a client-supplied processId"`},
		{"command/exec", `{"command":["true"],"streamStdoutStderr":true,"processId":null}`, `"code":-32600,"message":"command/exec tty or streaming requires a client-supplied processId"`},
		{"command/exec", `{"command":["true"],"size":{"rows":1,"cols":1}}`, `"code":-32602,"message":"command/exec size requires tty: true"`},
		{"command/exec", `{"command":["true"],"tty":true,"processId":"x","size":{"rows":0,"cols":1}}`, `"code":-32602,"message":"command/exec size rows and cols must be greater than 0"`},
		{"command/exec", `{"command":["true"],"timeoutMs":1,"disableTimeout":true}`, `"code":-32602,"message":"command/exec cannot set both timeoutMs and disableTimeout"`},
		{"command/exec", `{"command":["true"],"outputBytesCap":1,"disableOutputCap":true}`, `"code":-32602,"message":"command/exec cannot set both outputBytesCap and disableOutputCap"`},
		{"command/exec", `{"command":["true"],"timeoutMs":-1}`, `"code":-32602,"message":"command/exec timeoutMs must be non-negative, got -1"`},
		{"command/exec", `{"command":["true"],"permissionProfile":"x"}`, "\"code\":-32600,\"message\":\"`permissionProfile` is not supported"},
		{"command/exec", `{"command":["true"],"permissionProfile":"x","sandboxPolicy":{"type":"readOnly"}}`, "\"code\":-32600,\"message\":\"`permissionProfile` cannot be combined with `sandboxPolicy`\""},
		{"command/exec", `{"command":["true"],"sandboxPolicy":{"type":"dangerFullAccess"}}`, `"code":-32600,"message":"sandboxPolicy dangerFullAccess is refused: the configuration does not map it to a profile (exec_server.full_access); use readOnly or workspaceWrite"`},
		{"command/exec", `{"command":["true"],"sandboxPolicy":{"type":"externalSandbox","networkAccess":"restricted"}}`, `"code":-32600,"message":"sandboxPolicy externalSandbox is refused`},
		{"command/exec", `{"command":["true"],"sandboxPolicy":{"type":"readOnly","networkAccess":"npm"}}`, `"code":-32600,"message":"Invalid request: ` + "`networkAccess`" + ` must be a boolean`},
		{"command/exec", `{"command":["true"],"sandboxPolicy":{"type":"readOnly","access":{"type":"restricted"}}}`, `"code":-32600,"message":"sandboxPolicy restricted read access`},
		{"command/exec", `{"command":["true"],"sandboxPolicy":{"type":"workspaceWrite","writableRoots":["/srv/app/x","/srv/app/../other"]}}`, `"code":-32600,"message":"sandboxPolicy writableRoots: \"/srv/app/../other\" is not in the repository of the cwd, \"/srv/app\""`},
		{"command/exec", `{"command":["true"],"sandboxPolicy":{"type":"workspaceWrite","writableRoots":["x"]}}`, "Invalid request: `sandboxPolicy.writableRoots` must be absolute paths, got \\\"x\\\""},
		{"command/exec", `{"command":["true"],"cwd":"/srv/application"}`, `"code":-32600,"message":"cwd \"/srv/application\" is not in a served repository: use a directory in \"/srv/app\" or \"/srv/app/inner\" or \"/srv/other\""`},
		{"command/exec", `{"command":["true"],"cwd":"../.."}`, `"code":-32600,"message":"cwd \"/\" is not in a served repository: use a directory in \"/srv/app\" or \"/srv/app/inner\" or \"/srv/other\""`},
		{"command/exec", `{"command":["true"],"processId":"p2"}`, `"code":-32600,"message":"duplicate active command/exec process id: \"p2\""`},
		{"command/exec", `{"command":["missing"]}`, `"code":-32603,"message":"failed to spawn command: No such file or directory (os error 2)"`},
		{"command/exec", `{"command":["closed"],"processId":"x","streamStdin":true}`, `"code":-32603,"message":"failed to spawn command: Permission denied (os error 13)"`},
		{"command/exec", `{"command":["text"]}`, `"code":-32603,"message":"failed to spawn command: Exec format error (os error 8)"`},
		{"command/exec", `{"command":["nowhere"]}`, `"code":-32603,"message":"failed to spawn command: No such file or directory (os error 2)"`},
		{"command/exec", `{"command":["large"]}`, `"code":-32603,"message":"failed to spawn command: Argument list too long (os error 7)"`},
		{"command/exec", `{"command":["a\u0000b"]}`, `"code":-32603,"message":"failed to spawn command: nul byte found in provided data"`},
		{"command/exec", `{"command":["true"],"cwd":"a\u0000b"}`, `"code":-32603,"message":"failed to spawn command: nul byte found in provided data"`},
		{"command/exec", `{"command":["true"],"env":{"A":"\u0000"}}`, `"code":-32603,"message":"failed to spawn command: nul byte found in provided data"`},
		{"command/exec", `{"command":["outside"]}`, `"code":-32600,"message":"command/exec denied: Relative CWD`},
		{"command/exec", `{"command":["full"]}`, `"code":-32600,"message":"command/exec denied: more than the operator allows"`},
		{"command/exec", `{"command":["denied"]}`, denied},
		{"command/exec", `{"command":["denied"]}`, `"data":{"rule":"rules","auditHash":"h"}`},
		{"command/exec", `{"command":["busy"]}`, `"code":-32001,"message":"Concurrency limit reached"`},
		{"command/exec", `{"command":["long"]}`, `"code":-32603,"message":"failed to spawn command: Argument list too long (os error 7)"`},
		{"command/exec", `{"command":["down"]}`, `"code":-32603,"message":"exec failed: no supervisor at /run/x"`},
		{"command/exec", `{"command":["lost"]}`, `"code":-32603,"message":"exec failed: the supervisor ended while the command ran"`},
		{"command/exec/write", `{"deltaBase64":""}`, "\"code\":-32600,\"message\":\"Invalid request: missing field `processId`\""},
		{"command/exec/write", `{"processId":"nope"}`, `"code":-32602,"message":"command/exec/write requires deltaBase64 or closeStdin"`},
		{"command/exec/write", `{"processId":"nope","deltaBase64":null,"closeStdin":null}`, `"code":-32602,"message":"command/exec/write requires deltaBase64 or closeStdin"`},
		{"command/exec/write", `{"processId":"nope","deltaBase64":"!"}`, `"code":-32602,"message":"invalid deltaBase64: `},
		{"command/exec/write", `{"processId":"nope","deltaBase64":"YQ"}`, `"code":-32602,"message":"invalid deltaBase64: `},
		{"command/exec/write", `{"processId":"nope","deltaBase64":"YQ\n=="}`, `"code":-32602,"message":"invalid deltaBase64: `},
		{"command/exec/write", `{"processId":"nope","closeStdin":true}`, `"code":-32600,"message":"no active command/exec for process id \"nope\""`},
		{"command/exec/write", `{"processId":"p2","deltaBase64":"YQ=="}`, `"code":-32600,"message":"stdin streaming is not enabled for this command/exec"`},
		{"command/exec/resize", `{"processId":"nope","size":{"rows":0,"cols":1}}`, `"code":-32602,"message":"command/exec size rows and cols must be greater than 0"`},
		{"command/exec/resize", `{"processId":"nope","size":{"rows":1,"cols":1}}`, `"code":-32600,"message":"no active command/exec for process id \"nope\""`},
		{"command/exec/resize", `{"processId":"p2","size":{"rows":1,"cols":1}}`, `"code":-32600,"message":"failed to resize PTY: process is not attached to a PTY"`},
		{"command/exec/resize", `{"processId":"p2"}`, "Invalid request: missing field `size`"},
		{"command/exec/terminate", `{"processId":"no\"pe"}`, `"code":-32600,"message":"no active command/exec for process id \"no\\\"pe\""`},
		{"command/exec/terminate", `{}`, "Invalid request: missing field `processId`"},
		{"process/spawn", `{"command":["true"],"cwd":"/srv/app"}`, "Invalid request: missing field `processHandle`"},
		{"process/spawn", `{"command":["true"],"processHandle":"x"}`, "Invalid request: missing field `cwd`"},
		{"process/spawn", `{"command":["true"],"processHandle":"x","cwd":"x"}`, "Invalid request: `cwd` must be an absolute path"},
		{"process/spawn", `{"command":[],"processHandle":"x","cwd":"/srv/app"}`, `"code":-32600,"message":"command must not be empty"`},
		{"process/spawn", `{"command":["true"],"processHandle":"","cwd":"/srv/app"}`, `"code":-32600,"message":"processHandle must not be empty"`},
		{"process/spawn", `{"command":["true"],"processHandle":"x","cwd":"/srv/app","size":{"rows":1,"cols":1}}`, `"code":-32602,"message":"process/spawn size requires tty: true"`},
		{"process/spawn", `{"command":["true"],"processHandle":"x","cwd":"/srv/app","tty":true,"size":{"rows":1,"cols":0}}`, `"code":-32602,"message":"process size rows and cols must be greater than 0"`},
		{"process/spawn", `{"command":["true"],"processHandle":"x","cwd":"/srv/app","timeoutMs":-5}`, `"code":-32602,"message":"process/spawn timeoutMs must be non-negative, got -5"`},
		{"process/spawn", `{"command":["true"],"processHandle":"h2","cwd":"/srv/app"}`, `"code":-32600,"message":"duplicate active process handle: \"h2\""`},
		{"process/spawn", `{"command":["missing"],"processHandle":"x","cwd":"/srv/app"}`, `"code":-32603,"message":"failed to spawn process: No such file or directory (os error 2)"`},
		{"process/spawn", `{"command":["denied"],"processHandle":"x","cwd":"/srv/app"}`, `"code":-32600,"message":"process/spawn denied: not today"`},
		{"process/writeStdin", `{"processHandle":"h2"}`, `"code":-32602,"message":"process/writeStdin requires deltaBase64 or closeStdin"`},
		{"process/writeStdin", `{"processHandle":"h2","deltaBase64":"YQ=="}`, `"code":-32600,"message":"stdin streaming is not enabled for this process"`},
		{"process/kill", `{"processHandle":"p2"}`, `"code":-32600,"message":"no active process for process handle \"p2\""`},
		{"process/resizePty", `{"processHandle":"h2","size":{"rows":1,"cols":1}}`, `"code":-32600,"message":"failed to resize PTY: process is not attached to a PTY"`},
	} {
		if m := p.answer(p.ask(tt.method, tt.params)); m.Error == nil || !strings.Contains(m.raw, tt.want) {
			t.Errorf("%s %s: %s, want %s", tt.method, tt.params, m.raw, tt.want)
		}
	}
	// The running processes were not affected.
	p.must("command/exec/terminate", `{"processId":"p2"}`)
	p.must("process/kill", `{"processHandle":"h2"}`)
}

// denials is a policy that denies a few programs and NUL bytes.
func denials(r *job.Request) (rule, reason string) {
	switch {
	case r.Command[0] == "denied":
		return "rules", "not today"
	case r.Command[0] == "busy":
		return "concurrency", "Concurrency limit reached"
	case r.Command[0] == "long":
		return "arguments", "too long"
	case strings.Contains(fmt.Sprint(r.Command, r.Dir), "\x00") || r.Env["A"] != nil && *r.Env["A"] == "\x00":
		return "arguments", "NUL"
	}
	return "", ""
}

// TestResults checks the results of processes that ran.
func TestResults(t *testing.T) {
	code := func(n int) *int { return &n }
	say := func(s string) *string { return &s }
	w := &world{run: shell}
	p := initialized(t, w.server())
	for _, tt := range []struct {
		params string
		want   result
	}{
		{`{"command":["both"]}`, result{ExitCode: code(0), Stdout: say("out"), Stderr: say("err")}},
		{`{"command":["true"],"processId":null,"tty":null,"env":null,"size":null,"cwd":null,"sandboxPolicy":null,"unknown":{}}`, result{ExitCode: code(0), Stdout: say(""), Stderr: say("")}},
		{`{"command":["exit","44"]}`, result{ExitCode: code(44), Stdout: say(""), Stderr: say("")}},
		{`{"command":["signal"]}`, result{ExitCode: code(143), Stdout: say(""), Stderr: say("")}},
		{`{"command":["oom"]}`, result{ExitCode: code(137), Stdout: say(""), Stderr: say(""), Limit: "memory"}},
		{`{"command":["timeout"]}`, result{ExitCode: code(124), Stdout: say("part"), Stderr: say("")}},
		{`{"command":["sensitive"]}`, result{ExitCode: code(0), Stdout: say(""), Stderr: say(""), Sensitive: []string{".git/hooks/x\n\uFFFD"}, SensitiveMore: 3, Network: &job.NetworkUse{Denied: 1, Denials: []job.NetworkDenial{{Name: "example.org", Port: 443, Why: "no rule", Count: 1}}}}},
		{`{"command":["print","12345"],"outputBytesCap":5}`, result{ExitCode: code(0), Stdout: say("12345"), Stderr: say("")}},
		{`{"command":["print","12345"],"outputBytesCap":4}`, result{ExitCode: code(0), Stdout: say("1234"), Stderr: say(""), StdoutTruncated: true}},
		{`{"command":["print","12345"],"outputBytesCap":0}`, result{ExitCode: code(0), Stdout: say(""), Stderr: say(""), StdoutTruncated: true}},
		{`{"command":["print","12345"],"outputBytesCap":18446744073709551615}`, result{ExitCode: code(0), Stdout: say("12345"), Stderr: say("")}},
		{`{"command":["print","a€€"],"outputBytesCap":6}`, result{ExitCode: code(0), Stdout: say("a€"), Stderr: say(""), StdoutTruncated: true}},
		{`{"command":["print","a€€"],"outputBytesCap":4}`, result{ExitCode: code(0), Stdout: say("a€"), Stderr: say(""), StdoutTruncated: true}},
	} {
		if got := p.result(p.ask("command/exec", tt.params)); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, %q, %q", tt.params, got, *got.Stdout, *got.Stderr)
		}
	}
}

// TestRequest checks the job.Request that the engine receives.
func TestRequest(t *testing.T) {
	direct, readonly := job.Direct, job.ReadOnly
	value := "1"
	for _, tt := range []struct {
		method, params string
		want           job.Request
	}{
		{"command/exec", `{"command":["true"]}`, job.Request{Repo: "app", Workspace: &readonly, Usual: job.Limits{Wall: 10 * time.Second}}},
		{"command/exec", `{"command":["true"],"cwd":"a/../b"}`, job.Request{Repo: "app", Dir: "b", Workspace: &readonly, Usual: job.Limits{Wall: 10 * time.Second}}},
		{"command/exec", `{"command":["true"],"cwd":"/srv/app/inner/x/"}`, job.Request{Repo: "inner", Dir: "x", Workspace: &readonly, Usual: job.Limits{Wall: 10 * time.Second}}},
		{
			"command/exec", `{"command":["true"],"cwd":"/srv/other","timeoutMs":5,"env":{"A":"1","B":null},"sandboxPolicy":{"type":"workspaceWrite","writableRoots":["/srv/other/x"],"networkAccess":false,"excludeSlashTmp":true}}`,
			job.Request{Repo: "other", Workspace: &direct, Protect: job.ProtectAll, Env: map[string]*string{"A": &value, "B": nil}, Limits: job.Limits{Wall: 5 * time.Millisecond}},
		},
		{"command/exec", `{"command":["true"],"timeoutMs":0}`, job.Request{Repo: "app", Workspace: &readonly, Limits: job.Limits{Wall: time.Millisecond}}},
		{"command/exec", `{"command":["true"],"timeoutMs":9223372036854775807}`, job.Request{Repo: "app", Workspace: &readonly, Limits: job.Limits{Wall: 365 * 24 * time.Hour}}},
		{"command/exec", `{"command":["true"],"disableTimeout":true}`, job.Request{Repo: "app", Workspace: &readonly, Limits: job.Limits{Wall: job.Unlimited}}},
		{"command/exec", `{"command":["true"],"processId":"x","streamStdin":true,"sandboxPolicy":{"type":"readOnly","access":{"type":"fullAccess"}}}`, job.Request{Repo: "app", Workspace: &readonly, Streamed: true, Usual: job.Limits{Wall: 10 * time.Second}}},
		{"process/spawn", `{"command":["true"],"processHandle":"x","cwd":"/srv/app","timeoutMs":null}`, job.Request{Repo: "app", Limits: job.Limits{Wall: job.Unlimited}}},
		{"process/spawn", `{"command":["true"],"processHandle":"x","cwd":"/srv/app"}`, job.Request{Repo: "app", Usual: job.Limits{Wall: 10 * time.Second}}},
		{"command/exec", `{"command":["true"],"sandboxPolicy":{"type":"readOnly","networkAccess":true}}`, job.Request{NeedsNetwork: true, Repo: "app", Workspace: &readonly, Usual: job.Limits{Wall: 10 * time.Second}}},
	} {
		w := &world{run: shell}
		p := initialized(t, w.server())
		p.must(tt.method, tt.params)
		p.hangUp()
		got := w.reqs[0]
		if len(got.ID) != 32 || len(got.Session) != 32 {
			t.Errorf("id %q, session %q", got.ID, got.Session)
		}
		got.ID, got.Session = "", ""
		if tt.method == "command/exec" && !tt.want.NeedsNetwork { // its default is no network access
			tt.want.Network = job.NoNetwork
		}
		tt.want.Tool, tt.want.Principal, tt.want.Command = tt.method, "user:ada", []string{"true"}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.params, got, tt.want)
		}
	}
}

// TestMapped checks that a request to leave the sandbox runs under the engine it is mapped to, with the repository's
// settings.
func TestMapped(t *testing.T) {
	w, full, outer := &world{run: shell}, &world{run: shell}, &world{run: shell}
	s := w.server()
	s.FullAccess, s.External = full.server().Engine, outer.server().Engine
	p := initialized(t, s)
	p.must("command/exec", `{"command":["true"],"sandboxPolicy":{"type":"dangerFullAccess"}}`)
	p.must("command/exec", `{"command":["true"],"sandboxPolicy":{"type":"externalSandbox"}}`)
	if len(w.reqs) != 0 || len(full.reqs) != 1 || len(outer.reqs) != 1 || full.reqs[0].Workspace != nil || full.reqs[0].Protect != job.ProtectNone ||
		full.reqs[0].Network != "" || outer.reqs[0].Network != job.NoNetwork {
		t.Errorf("%d, %d, %d, %+v", len(w.reqs), len(full.reqs), len(outer.reqs), full.reqs)
	}
}

// TestRepos checks that a principal can use only its own repositories.
func TestRepos(t *testing.T) {
	w := &world{run: shell}
	s := w.server()
	p := dialAs(t.Context(), t, s, Caller{Principal: "token:ci", Session: "s", Repos: []string{"other"}})
	go p.read()
	p.must("initialize", `{"clientInfo":{"name":"x"}}`)
	p.must("command/exec", `{"command":["true"],"cwd":"/srv/other"}`)
	if m := p.answer(p.ask("command/exec", `{"command":["true"]}`)); m.Error == nil || m.Error.Code != jsonrpc.CodeRequest {
		t.Error(m.raw)
	}
	if w.reqs[0].Principal != "token:ci" || w.reqs[0].Session != "s" || len(w.denied) != 1 {
		t.Errorf("%+v, %+v", w.reqs, w.denied)
	}
}

// TestStreaming checks output deltas and their cap.
func TestStreaming(t *testing.T) {
	w := &world{run: shell}
	p := initialized(t, w.server())
	for n, tt := range []struct {
		command, cap string
		want         string
		capped       bool
	}{
		{`["print","12345"]`, `5`, "12345", false},
		{`["print","12345"]`, `3`, "123", true},
		{`["print","12345"]`, `0`, "", true},
		{`["print","a€"]`, `2`, "a\xe2", true},
		{`["true"]`, `0`, "", false},
	} {
		id := fmt.Sprint("s", n)
		r := p.result(p.ask("command/exec", fmt.Sprintf(`{"command":%s,"processId":%q,"streamStdoutStderr":true,"outputBytesCap":%s}`, tt.command, id, tt.cap)))
		got, _, capped := p.output(id, "stdout")
		if got != tt.want || capped != tt.capped || r.StdoutTruncated != tt.capped || *r.Stdout != "" {
			t.Errorf("%s, cap %s: %q, capped %v, %+v", tt.command, tt.cap, got, capped, r)
		}
	}
	p.result(p.ask("command/exec", `{"command":["both"],"processId":"b","streamStdoutStderr":true}`))
	if got, _, _ := p.output("b", "stderr"); got != "err" {
		t.Errorf("stderr: %q, want \"err\"", got)
	}
	// The dropped bytes are in a later write than the one that reached the cap.
	drained := make(chan struct{})
	w.run = func(_ context.Context, io job.Stdio, _ []string) (job.Result, error) {
		defer close(drained)
		for range 1000 {
			if _, err := io.Stdout.Write(make([]byte, 1024)); err != nil {
				return job.Result{}, err
			}
		}
		return job.Result{Status: job.Failure, ExitCode: 3}, nil
	}
	r := p.result(p.ask("command/exec", `{"command":["x"],"processId":"x","streamStdoutStderr":true,"outputBytesCap":2048}`))
	<-drained
	if got, _, capped := p.output("x", "stdout"); len(got) != 2048 || !capped || *r.ExitCode != 3 {
		t.Errorf("%d bytes, %v, %+v", len(got), capped, r)
	}
}

// TestValidText checks that each invalid sequence becomes one U+FFFD.
func TestValidText(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "a€😀": "a€😀", "\xff\xfe": "\uFFFD\uFFFD", "a\xe2\x82": "a\uFFFD", "\xe2\x82a": "\uFFFDa", "\xf0\x9f\x98": "\uFFFD",
		"\xf0\x9f\x98\xf0\x9f\x98\x80": "\uFFFD😀", "\xed\xa0\x80": "\uFFFD\uFFFD\uFFFD", "\xc0\xaf": "\uFFFD\uFFFD", "\uFFFDx": "\uFFFDx",
		"\xe2\x28\xa1": "\uFFFD(\uFFFD",
	} {
		if got := validText([]byte(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
