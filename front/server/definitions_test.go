package server

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"corral/front/supervisor"
	"corral/internal/config"
	"corral/mcp/tool"
)

// tools returns the tools that a server with one repository has: those that are listed by default, and those for agents.
func tools(t *testing.T) (listed, agents []tool.Tool) {
	t.Helper()
	c := config.Default()
	c.Repos = []config.Repo{{ID: "app", Path: "/srv/app"}}
	rules, err := NewPolicy(c, &Principals{})
	if err != nil {
		t.Fatal(err)
	}
	o := backendOptions{Config: c, Log: slog.New(slog.DiscardHandler), Supervisor: &supervisor.Connection{}, Single: true}
	set := newToolset(o, rules, nil, nil)
	listed, agents = set.list(o, rules), set.agentTools(c)
	set.ctx.Runtimes = nil // all, whichever this host has
	return listed, agents
}

// TestListSize: what clients read of the listed tools in each session is short. A new tool has room for about as much as the others.
func TestListSize(t *testing.T) {
	const average = 1100 // bytes of description and schemas
	listed, _ := tools(t)
	total := 0
	for _, tool := range listed {
		d := tool.Definition()
		size := len(d.Description) + len(d.Input)
		if !d.TextOnly {
			size += len(d.Output)
		}
		t.Logf("%s: %d bytes", d.Name, size)
		total += size
	}
	if limit := average * len(listed); total > limit {
		t.Errorf("%d tools have %d bytes of descriptions and schemas, more than %d: shorten one (-v shows each)", len(listed), total, limit)
	}
}

// TestPublishedDefinitions: what tools/list publishes about each tool is the file of its name in mcp/testdata/definitions. Clients depend
// on names, types and bounds; UPDATE=1 writes the files again after a deliberate change.
func TestPublishedDefinitions(t *testing.T) {
	listed, agents := tools(t)
	for _, tool := range slices.Concat(listed, agents) {
		var got bytes.Buffer
		e := json.NewEncoder(&got)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(tool.Definition()); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join("..", "..", "mcp", "testdata", "definitions", tool.Name()+".json")
		if os.Getenv("UPDATE") == "1" {
			if err := os.WriteFile(name, got.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(name) //nolint:gosec // a file of this test
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: the definition is not that of %s (UPDATE=1 writes it):\n%s", tool.Name(), name, got.Bytes())
		}
	}
}
