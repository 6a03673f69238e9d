package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestExecRefusals checks the error codes and messages of the protocol.
func TestExecRefusals(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place, s *execSite) {
		c := s.dial()
		go c.receive()
		c.refused("command/exec", `{"command":["true"]}`, -32600, "Not initialized")
		c.refused("initialize", `{}`, -32600, "Invalid request:…")
		c.must("initialize", object{"clientInfo": object{"name": "test", "version": "1"}})
		c.refused("initialize", `{"clientInfo":{"name":"test","version":"1"}}`, -32600, "Already initialized")
		running := c.start(object{"processId": "p2"}, "sleep", "600")
		for _, row := range execRefusals() {
			c.refused(row.method, strings.ReplaceAll(row.params, "REPO", p.repo), row.code, row.message)
		}
		c.must("command/exec/terminate", object{"processId": "p2"})
		if r := c.result("p2", running); *r.ExitCode != 137 {
			t.Errorf("terminated: %d", *r.ExitCode)
		}
		c.refused("command/exec/terminate", `{"processId":"p2"}`, -32600, `no active command/exec for process id "p2"`)
		if len(c.stray) > 0 {
			t.Errorf("unexpected messages: %q", c.stray)
		}
	})
}

// refused sends a request and compares the error. message may end in …, which stands for any text.
func (c *execClient) refused(method, params string, code int, message string) {
	c.t.Helper()
	m := c.call(method, json.RawMessage(params))
	begin, isBegin := strings.CutSuffix(message, "…")
	switch {
	case m.Error == nil:
		c.t.Errorf("%s %.200s: %.200s, want %q", method, params, m.Result, message)
	case m.Error.Code != code, isBegin && !strings.HasPrefix(m.Error.Message, begin), !isBegin && m.Error.Message != message:
		c.t.Errorf("%s %.200s: %d %q, want %d %q", method, params, m.Error.Code, m.Error.Message, code, message)
	}
}

type execRefusal struct {
	method, params string
	code           int
	message        string
}

// execRefusals are sent while a process p2 runs that does not stream.
func execRefusals() []execRefusal {
	const (
		exec, write, resize, terminate = "command/exec", "command/exec/write", "command/exec/resize", "command/exec/terminate"
		invalid                        = "Invalid request:…"
		needsID                        = "command/exec tty or streaming requires a client-supplied processId"
		noSize                         = "command/exec size rows and cols must be greater than 0"
	)
	return []execRefusal{
		{exec, `{}`, -32600, invalid},
		{exec, `{"command":"true"}`, -32600, invalid},
		{exec, `{"command":[1]}`, -32600, invalid},
		{exec, `{"command":["true"],"tty":"yes"}`, -32600, invalid},
		{exec, `{"command":["true"],"processId":7}`, -32600, invalid},
		{exec, `{"command":["true"],"timeoutMs":1.5}`, -32600, invalid},
		{exec, `{"command":["true"],"timeoutMs":"1"}`, -32600, invalid},
		{exec, `{"command":["true"],"outputBytesCap":-1}`, -32600, invalid},
		{exec, `{"command":["true"],"env":{"A":1}}`, -32600, invalid},
		{exec, `{"command":["true"],"env":["A"]}`, -32600, invalid},
		{exec, `{"command":["true"],"cwd":1}`, -32600, invalid},
		{exec, `{"command":["true"],"processId":"a","tty":true,"size":{"rows":70000,"cols":1}}`, -32600, invalid},
		{exec, `{"command":["true"],"processId":"a","tty":true,"size":{"rows":1}}`, -32600, invalid},
		{exec, `{"command":["true"],"sandboxPolicy":{"type":"moon"}}`, -32600, invalid},
		{exec, `{"command":["true"],"sandboxPolicy":{}}`, -32600, invalid},
		{exec, `{"command":["true"],"sandboxPolicy":"readOnly"}`, -32600, invalid},
		{write, `{}`, -32600, invalid},
		{resize, `{"processId":"p2"}`, -32600, invalid},
		{terminate, `{}`, -32600, invalid},
		{"command/dance", `{}`, -32600, invalid},
		{"", `{}`, -32600, invalid},
		{exec, `{"command":[]}`, -32600, "command must not be empty"},
		{exec, `{"command":["true"],"tty":true}`, -32600, needsID},
		{exec, `{"command":["true"],"streamStdin":true}`, -32600, needsID},
		{exec, `{"command":["true"],"streamStdoutStderr":true}`, -32600, needsID},
		{exec, `{"command":["true"],"size":{"rows":1,"cols":1}}`, -32602, "command/exec size requires tty: true"},
		{exec, `{"command":["true"],"processId":"a","tty":true,"size":{"rows":0,"cols":1}}`, -32602, noSize},
		{exec, `{"command":["true"],"processId":"a","tty":true,"size":{"rows":1,"cols":0}}`, -32602, noSize},
		{resize, `{"processId":"nope","size":{"rows":0,"cols":1}}`, -32602, noSize},
		{exec, `{"command":["true"],"timeoutMs":1,"disableTimeout":true}`, -32602, "command/exec cannot set both timeoutMs and disableTimeout"},
		{exec, `{"command":["true"],"outputBytesCap":1,"disableOutputCap":true}`, -32602, "command/exec cannot set both outputBytesCap and disableOutputCap"},
		{exec, `{"command":["true"],"timeoutMs":-1}`, -32602, "command/exec timeoutMs must be non-negative, got -1"},
		{exec, `{"command":["true"],"processId":"p2"}`, -32600, `duplicate active command/exec process id: "p2"`},
		{exec, `{"command":["/no/such/program"]}`, -32603, "failed to spawn command: No such file or directory (os error 2)"},
		{exec, `{"command":["no-such-program"]}`, -32603, "failed to spawn command: No such file or directory (os error 2)"},
		{exec, `{"command":["true"],"cwd":"none"}`, -32603, "failed to spawn command: No such file or directory (os error 2)"},
		{exec, `{"command":["/etc/hosts"]}`, -32603, "failed to spawn command: Permission denied (os error 13)"},
		{exec, `{"command":["tr\u0000ue"]}`, -32603, "failed to spawn command: …"},
		{exec, `{"command":["true","\u0000"]}`, -32603, "failed to spawn command: …"},
		{exec, `{"command":["true"],"cwd":"/etc"}`, -32600, "…"},
		{exec, `{"command":["true"],"cwd":".."}`, -32600, "…"},
		{exec, `{"command":["true"],"cwd":"REPO-other"}`, -32600, "…"},
		{write, `{"processId":"nope","deltaBase64":""}`, -32600, `no active command/exec for process id "nope"`},
		{resize, `{"processId":"nope","size":{"rows":1,"cols":1}}`, -32600, `no active command/exec for process id "nope"`},
		{terminate, `{"processId":"nope"}`, -32600, `no active command/exec for process id "nope"`},
		{write, `{"processId":"nope"}`, -32602, "command/exec/write requires deltaBase64 or closeStdin"},
		{write, `{"processId":"nope","deltaBase64":"?"}`, -32602, "invalid deltaBase64: …"},
		{write, `{"processId":"p2","deltaBase64":"YQ"}`, -32602, "invalid deltaBase64: …"},
		{write, `{"processId":"p2","deltaBase64":"YQ=="}`, -32600, "stdin streaming is not enabled for this command/exec"},
		{resize, `{"processId":"p2","size":{"rows":1,"cols":1}}`, -32600, "failed to resize PTY: process is not attached to a PTY"},
		{exec, `{"command":["true"],"permissionProfile":{}}`, -32600, "…"},
		{exec, `{"command":["true"],"sandboxPolicy":{"type":"dangerFullAccess"}}`, -32600, "…"},
		{exec, `{"command":["true"],"sandboxPolicy":{"type":"externalSandbox","networkAccess":"restricted"}}`, -32600, "…"},
		{exec, `{"command":["true"],"sandboxPolicy":{"type":"workspaceWrite","networkAccess":true}}`, -32600, "…"},
		{exec, `{"command":["true"],"sandboxPolicy":{"type":"readOnly","networkAccess":true}}`, -32600, "…"},
		{exec, `{"command":["true"],"sandboxPolicy":{"type":"workspaceWrite","writableRoots":["/etc"]}}`, -32600, "…"},
		{"process/kill", `{"processHandle":"p2"}`, -32600, "no active process…"},
	}
}
