package server

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"corral/internal/test/mcptest"
	"corral/internal/test/sandboxtest"
)

// TestDocuments: each tool's page documents every argument and reply key, and no others.
func TestDocuments(t *testing.T) {
	listed, _ := tools(t)
	for _, tool := range listed {
		d := tool.Definition()
		interfaces := filepath.Join(sandboxtest.ModuleRoot(t), "docs", "interfaces")
		page, err := os.ReadFile(filepath.Join(interfaces, d.Name+".md"))
		if errors.Is(err, os.ErrNotExist) && d.Dotted != "" {
			page, err = os.ReadFile(filepath.Join(interfaces, d.Dotted+".md"))
		}
		text := string(page)
		said := map[string]string{} // what the introduction of a page says of all tools, by section
		if err != nil {
			text = ofContext(t, d.Name)
			said = map[string]string{"Arguments": "repoId", "Reply": "text"}
		}
		for section, raw := range map[string][]byte{"Arguments": d.Input, "Reply": d.Output} {
			if raw == nil {
				continue
			}
			var want []string
			for name := range mcptest.ReadSchema(t, raw).Properties {
				if name == said[section] || section == "Reply" && (name == "code" || name == "details" || name == "message" && ofError(d.Output)) {
					continue // the second is a key of errors
				}
				want = append(want, name)
			}
			got := documented(text, section)
			if len(got) == 1 && strings.HasPrefix(got[0], "ctx_") { // "those of" another tool
				got = documented(ofContext(t, got[0]), section)
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s, %s: the page has %q, the schema %q", d.Name, section, got, want)
			}
		}
		if !strings.Contains(text, d.Dotted) {
			t.Errorf("%s: the page has no %s", d.Name, d.Dotted)
		}
	}
}

// ofContext returns what the page of the tools with a knowledge base says of one, with its headings as those of a page of its own.
func ofContext(t *testing.T, tool string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(sandboxtest.ModuleRoot(t), "docs", "interfaces", "ctx.md"))
	_, rest, found := strings.Cut(string(page), "\n## "+tool+"\n")
	if err != nil || !found {
		t.Fatalf("no page documents %s: %v", tool, err)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	return strings.ReplaceAll("\n"+rest, "\n### ", "\n## ")
}

// TestAgentDocument: the page of the tools for agents documents every argument of each, and no others.
func TestAgentDocument(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(sandboxtest.ModuleRoot(t), "docs", "interfaces", "agent.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, agents := tools(t)
	for _, tool := range agents {
		want := slices.Sorted(maps.Keys(mcptest.ReadSchema(t, tool.Definition().Input).Properties))
		got := documented(string(page), tool.Name())
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the page has %q, the schema %q", tool.Name(), got, want)
		}
	}
}

// ofError reports whether a reply schema has message for errors only: ReplySchema then adds it with their other keys, at the end.
func ofError(output []byte) bool {
	return strings.Contains(string(output), `"message":{"type":"string"},"code":{"type":"string"},"details":{"type":"object"}}}`)
}

// documented returns the names in the first column of a section's table.
func documented(page, section string) []string {
	_, rest, _ := strings.Cut(page, "\n## "+section+"\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	var names []string
	for line := range strings.Lines(rest) {
		if first, _, ok := strings.Cut(strings.TrimPrefix(line, "|"), "|"); ok && strings.HasPrefix(line, "|") {
			for _, m := range regexp.MustCompile("`([A-Za-z_]+)`").FindAllStringSubmatch(first, -1) {
				names = append(names, m[1])
			}
		}
	}
	return names
}
