package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/internal/config"
	"corral/internal/test/sandboxtest"
)

// agentHost starts a server whose listed tools are those for agents.
func (p *place) agentHost(t *testing.T, sections string) *host {
	t.Helper()
	return connect(t, p.front("mcp", "--config", p.config(t, sections), "--supervisor", daemon(t).Socket, "--tools", "agent"))
}

// agentCall calls a tool whose reply is text, and returns the text.
func (h *host) agentCall(tool string, arguments object) string {
	h.t.Helper()
	timeout, _ := arguments["timeout"].(int) // the call may take as long
	a := h.mustWithin(time.Duration(timeout)*time.Second, "tools/call", object{"name": tool, "arguments": arguments})
	if len(a.Result.Content) != 1 || a.Result.Structured != nil {
		h.t.Fatalf("%s: not one text: %+v", tool, a.Result)
	}
	got := a.Result.Content[0].Text
	if a.Result.IsError {
		got = "error: " + got
	}
	return got
}

// run runs a shell command.
func (h *host) run(code string) string {
	h.t.Helper()
	return h.agentCall("run", object{"code": code})
}

// TestAgentShares checks that the jobs of a session share HOME, which reset and other sessions begin empty, and that jobs at the
// same time have code of their own.
func TestAgentShares(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	h := p.agentHost(t, "")
	if got := h.run("mkdir -p ~/.cache; echo kept >~/.cache/f; echo in the repository >made"); got != "[exit 0]" {
		t.Fatalf("%q", got)
	}
	if got := h.run("cat ~/.cache/f made"); got != "kept\nin the repository\n" {
		t.Errorf("the next call: %q", got)
	}
	if text, err := os.ReadFile(p.repo + "/made"); err != nil || string(text) != "in the repository\n" {
		t.Errorf("on the host: %q, %v", text, err)
	}
	if got := p.agentHost(t, "").run("cat ~/.cache/f"); !strings.Contains(got, "No such file") {
		t.Errorf("another session: %q", got)
	}
	if got := h.agentCall("run", object{"code": "cat ~/.cache/f", "reset": true}); !strings.HasPrefix(got, "[stderr] cat: /home/job/.cache/f: No such file") {
		t.Errorf("after a reset: %q", got)
	}
}

// TestAgentInput checks that a job in the background reads what is sent to it, answers in the reply, and sees the end of its input; a
// job without input sees that at once, and one that does not read says so.
func TestAgentInput(t *testing.T) {
	sandboxtest.RequireJails(t)
	h := newPlace(t).agentHost(t, "")
	if got := h.run("cat; echo done"); got != "done\n" {
		t.Errorf("without input: %q", got)
	}
	if got := h.agentCall("run", object{"code": "while read -r a; do echo got $a; done; echo $a", "input": true, "background": true}); !strings.Contains(got, " runs, ") {
		t.Fatalf("%q", got)
	}
	got := h.agentCall("job", object{"input": "1\n2\n"})
	sandboxtest.Eventually(t, 20*time.Second, "the answer", func() bool {
		if !strings.HasPrefix(got, "got 1\ngot 2\n[job bg_") {
			got = h.agentCall("job", object{"action": "tail"})
			return false
		}
		return true
	})
	if got := h.agentCall("job", object{"action": "wait", "input": "the rest", "end": true}); got != "got 1\ngot 2\nthe rest\n" {
		t.Errorf("at its end: %q", got)
	}
	h.agentCall("run", object{"code": "exec sleep 1000", "input": true, "background": true})
	if got := h.agentCall("job", object{"input": strings.Repeat("x", 100_000)}); !strings.Contains(got, "it has read only 65536 of the 100000 bytes of input") {
		t.Errorf("a job that does not read: %q", got)
	}
	h.agentCall("run", object{"code": "exec sleep 1000", "background": true})
	if got := h.agentCall("job", object{"input": "x"}); !strings.HasPrefix(got, "error: id: job bg_") || !strings.Contains(got, "has no input: run it with input: true") {
		t.Errorf("a job without input: %q", got)
	}
}

// TestAgentServe checks that over HTTP a principal's tools decide whether the tools for agents are listed, and that the end of a
// session ends its jobs.
func TestAgentServe(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	agent, agentHash := config.NewToken()
	all, allHash := config.NewToken()
	w := p.web(t, d, fmt.Sprintf("principals:\n  - {name: a, token_sha256: \"%x\", tools: [agent]}\n  - {name: b, token_sha256: \"%x\"}\n", agentHash, allHash))
	sessions := map[string]string{}
	for token, want := range map[string]string{agent: "job", all: "ctx_execute"} {
		_, session, _ := w.post(token, "", hello)
		sessions[token] = session
		_, _, a := w.post(token, session, `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`)
		var names []string
		for _, tool := range a.Result.Tools {
			names = append(names, tool.Name)
		}
		if !slices.Contains(names, want) || slices.Contains(names, "run") != (token == agent) {
			t.Errorf("listed: %q", names)
		}
		w.call(token, session, "run", `{"code":"echo kept >~/f; exec sleep 1000","background":true}`)
		if a := w.call(token, session, "run", `{"code":"cat ~/f"}`); a.Result.Content[0].Text != "kept\n" {
			t.Errorf("%+v", a.Result)
		}
	}
	if _, _, a := w.post(agent, sessions[agent], `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"runtime_execute","arguments":{}}}`); a.Error == nil {
		t.Errorf("a tool that the principal may not use: %+v", a.Result)
	}
	for token, session := range sessions {
		w.end(token, session)
	}
	sandboxtest.Eventually(t, 20*time.Second, "the sessions end with their jobs", func() bool { return len(p.sessions(t, d)) == 0 })
}
