package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestStarlarkConfigured checks the settings of the configuration.
func TestStarlarkConfigured(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	with := func(sections string, more ...string) *host {
		return connect(t, p.front(append([]string{"mcp", "--config", p.config(t, sections), "--supervisor", d.Socket}, more...)...))
	}
	lists := func(h *host) bool {
		for _, tool := range h.must("tools/list", object{}).Result.Tools {
			if tool.Name == "starlark_run" || tool.Name == "code.sandbox.starlark.run" {
				return true
			}
		}
		return false
	}
	for _, sections := range []string{
		"starlark: {enabled: false}\n", "runtime: {enabled: false}\n", "runtime: {runtimes: [python]}\n", "starlark: {repo: nope}\n",
	} {
		if lists(with(sections)) {
			t.Errorf("%s: the tool is listed", sections)
		}
	}
	only := with("runtime: {runtimes: [starlark], executables: [nothing]}\n", "--tools", "starlark_run", "--tool-names", "dotted")
	if tools := only.must("tools/list", object{}).Result.Tools; len(tools) != 1 || tools[0].Name != "code.sandbox.starlark.run" {
		t.Errorf("%+v", tools)
	}
	only.computes()
	h := with("starlark: {repo: app, memory: 48MiB, max_wall: 2s}\n")
	h.computes()
	if s := h.starlark(object{"source": "", "limits": object{"wall_ms": 2001}}); s.Code != "DENIED" || s.Message != "Requested timeout (2001ms) exceeds maximum (2000ms)" || len(s.Details.AuditHash) != 64 {
		t.Errorf("%s", s.raw)
	}
	if s := h.starlark(object{"source": "while True: pass"}); s.Code != "TIMEOUT" || s.Message != "the script did not end within 1000 ms" {
		t.Errorf("%s", s.raw)
	}
	if s := h.starlark(object{"source": "x = 'x' * 100000000"}); s.Code != "MEMORY_LIMIT" {
		t.Errorf("%s", s.raw)
	}
	rules := filepath.Join(p.dir, "rules.star")
	if err := os.WriteFile(rules, []byte(`
def decide(request):
    if request.runtime == "starlark" and request.code_bytes > 100:
        return deny("no long programs")
    return limit(timeout_ms = 1000)
`), 0o644); err != nil {
		t.Fatal(err)
	}
	h = with("runtime: {rules: " + rules + "}\n")
	if s := h.starlark(object{"source": strings.Repeat("#", 101)}); s.Code != "DENIED" || s.Message != "no long programs" || s.Details.Rule != "rules" {
		t.Errorf("%s", s.raw)
	}
	if s := h.starlark(object{"source": "while True: pass"}); s.Code != "TIMEOUT" || s.Message != "the script did not end within 850 ms" {
		t.Errorf("%s", s.raw)
	}
}
