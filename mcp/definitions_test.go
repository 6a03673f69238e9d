package mcp

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"corral/mcp/agent"
	"corral/mcp/ctxtools"
	"corral/mcp/execute"
	"corral/mcp/tool"
)

// listed returns the tools that are listed by default.
func listed() []tool.Tool {
	own := []tool.Tool{&execute.Execute{}, &execute.QueryOutput{}, &execute.Sandbox{Repos: []string{"app"}}, &execute.Starlark{}}
	return append(own, ctxtools.New(ctxtools.Settings{}).Tools()...)
}

// TestPublishedDefinitions: what tools/list publishes about each tool is the file of its name in testdata/definitions. Clients depend
// on names, types and bounds; UPDATE=1 writes the files again after a deliberate change.
func TestPublishedDefinitions(t *testing.T) {
	for _, tool := range slices.Concat(listed(), agent.New(agent.Settings{}).Tools()) {
		var got bytes.Buffer
		e := json.NewEncoder(&got)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(tool.Definition()); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join("testdata", "definitions", tool.Name()+".json")
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
