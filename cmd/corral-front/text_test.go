package main

import (
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestTextReplies: a ctx tool replies with text alone, unless the server was started with --structured. Errors have their fields in
// any case.
func TestTextReplies(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	config := p.config(t, "")
	h := connect(t, p.usual("mcp", "--config", config, "--supervisor", daemon(t).Socket))
	list := h.must("tools/list", object{})
	for _, tool := range list.Result.Tools {
		if strings.HasPrefix(tool.Name, "ctx_") && tool.OutputSchema != nil {
			t.Errorf("%s has an output schema", tool.Name)
		}
	}
	call := func(h *host, code string) *response {
		return h.must("tools/call", object{"name": "ctx_execute", "arguments": object{"language": "shell", "code": code}})
	}
	if r := call(h, "echo said").Result; r.Structured != nil || len(r.Content) != 1 || r.Content[0].Text != "said\n" {
		t.Errorf("%s, %+v", r.Structured, r.Content)
	}
	if r := call(h, "").Result; !r.IsError || !strings.Contains(string(r.Structured), `"code":"INVALID_REQUEST"`) {
		t.Errorf("an error: %v, %s", r.IsError, r.Structured)
	}
	full := connect(t, p.front("mcp", "--config", config, "--supervisor", daemon(t).Socket))
	for _, tool := range full.must("tools/list", object{}).Result.Tools {
		if tool.Name == "ctx_execute" && tool.OutputSchema == nil {
			t.Error("no output schema with --structured")
		}
	}
	if r := call(full, "echo said").Result; r.Structured == nil {
		t.Error("no structuredContent with --structured")
	}
}
