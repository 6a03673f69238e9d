package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestNothingLost checks for each tool that what a program wrote before a timeout or a limit ended it is in the reply, or that a search
// right after finds it where the reply's text is fixed. Of a Starlark script that used up its time or memory nothing is returned: its
// replies do not vary, and with more time it emits the same text again.
func TestNothingLost(t *testing.T) {
	p, _, h := served(t, "defaults: {memory: 128MiB}\nstarlark: {memory: 96MiB}\nsandbox: {output_limit: 1KiB}\n")
	p.file(t, "f", "", 0o644)
	const hog = "echo needle-%; echo warned-% >&2; exec python3 -c 'x = bytearray(1 << 30)'"
	const wait = "echo needle-%; echo warned-% >&2; exec sleep 600"
	for _, tt := range []struct {
		name, tool string
		arguments  object
		search     bool // the reply has a fixed text
		stdoutOnly bool
	}{
		{"execute-late", "runtime_execute", object{"repoId": "app", "runtime": "shell", "code": wait, "timeoutMs": 1000}, false, false},
		{"execute-hog", "runtime_execute", object{"repoId": "app", "runtime": "shell", "code": hog}, false, false},
		{"ctx-late", "ctx_execute", object{"language": "shell", "code": wait, "timeout": 1000}, false, false},
		{"ctx-hog", "ctx_execute", object{"language": "shell", "code": hog}, false, false},
		{"file-late", "ctx_execute_file", object{"path": "f", "language": "shell", "code": wait, "timeout": 1000}, false, false},
		{"batch-late", "ctx_batch_execute", object{"commands": []object{{"label": "a", "command": wait}}, "timeout": 1000}, true, false},
		{"sandbox-late", "sandbox_exec", object{"command": wait, "timeout": 1}, true, false},
		{"sandbox-much", "sandbox_exec", object{"command": "echo needle-%; echo warned-% >&2; sleep 0.2; seq 10000"}, true, false},
		{"sandbox-hog", "sandbox_exec", object{"command": hog}, false, false},
		{"run-late", "run", object{"code": wait, "timeoutMs": 1000}, false, false},
		{"run-hog", "run", object{"code": hog}, false, false},
		{"starlark-much", "starlark_run", object{"source": "emit('needle-%')\nemit('x' * 5000)", "limits": object{"output_kb": 1}}, false, true},
	} {
		arguments := named(tt.arguments, tt.name)
		got := h.must("tools/call", object{"name": tt.tool, "arguments": arguments})
		text := got.Result.Content[0].Text + string(got.Result.Structured)
		if tt.search {
			text = h.agentCall("output", object{"search": "needle-" + tt.name}) + h.agentCall("output", object{"search": "warned-" + tt.name})
		}
		if !strings.Contains(text, "needle-"+tt.name) || !tt.stdoutOnly && !strings.Contains(text, "warned-"+tt.name) {
			t.Errorf("%s: %.600s", tt.name, text)
		}
	}
}

// named returns arguments with the name in place of each %, in the texts of all of them.
func named(arguments object, name string) object {
	made := object{}
	for key, value := range arguments {
		switch v := value.(type) {
		case string:
			value = strings.ReplaceAll(v, "%", name)
		case []object:
			var list []object
			for _, one := range v {
				list = append(list, named(one, name))
			}
			value = list
		}
		made[key] = value
	}
	return made
}

// TestSandboxRepositories checks that sandbox_exec works in each repository of its caller: on a copy, which its description names.
func TestSandboxRepositories(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	other := filepath.Join(p.dir, "other")
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(other, p.uid, p.uid); err != nil {
		t.Fatal(err)
	}
	config := p.config(t, "  - {id: other, path: "+other+"}\n")
	h := connect(t, p.front("mcp", "--config", config, "--supervisor", daemon(t).Socket))
	if text := h.sandboxDescription(); !strings.Contains(text, "app at "+p.repo+" (default), other at "+other+"; it is a copy-on-write copy") {
		t.Errorf("%q", text)
	}
	for _, at := range []string{".", other} {
		h.sandbox(object{"repoId": "other", "working_directory": at, "command": "pwd; echo new >made"}).want(t, 0, other+"\n")
	}
	h.sandbox(object{"repoId": "other", "working_directory": ".", "command": "cat made"}).want(t, 0, "new\n")
	if _, err := os.Stat(filepath.Join(other, "made")); err == nil {
		t.Error("the real directory was changed")
	}
}
