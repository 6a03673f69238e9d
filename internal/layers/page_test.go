package layers

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

var update = flag.Bool("update", false, "write the generated sections of ARCHITECTURE.md")

// TestTree compares the generated sections of ARCHITECTURE.md (its tree, imports and rules) with the source. With -update
// it writes them.
func TestTree(t *testing.T) {
	root := sandboxtest.ModuleRoot(t)
	g, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "ARCHITECTURE.md")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want, err := g.update(string(page))
	if err != nil {
		t.Fatal(err)
	}
	for name := range outsideGo {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Errorf("outsideGo: %v", err)
		}
	}
	if want == string(page) {
		return
	}
	if !*update {
		t.Fatalf("ARCHITECTURE.md differs from the source. Run: go test -tags seccomp ./internal/layers -run TestTree -update\n%s",
			firstDifference(string(page), want))
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// firstDifference returns the first line that differs, of both texts.
func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return "page:   " + g[i] + "\nsource: " + w[i]
		}
	}
	return "one ends before the other"
}

// TestUpdate proves that each section is rendered between its markers, and nothing else is touched.
func TestUpdate(t *testing.T) {
	g := graphOf(t, map[string]string{
		"cmd/x/main.go": "// X serves a|b. It has more to say.\npackage main\nimport (\n\"corral/lib\"\n\"example.org/y/z\"\n\"os\"\n)",
		"lib/lib.go":    "// Package lib reads\n// files.\npackage lib\nimport \"golang.org/x/sys/unix\"",
		"tool/tool.go":  "// Command tool is linked with nothing.\npackage main\nimport \"corral/lib\"",
	})
	g.libraries = append(g.libraries, "example.org/y", "golang.org/x/sys")
	const page = "# Title\n\n<!-- generated: tree -->\n\nold\n<!-- /generated: tree -->\n\nText\n" +
		"<!-- generated: imports -->\n\n<!-- /generated: imports -->\n<!-- generated: rules -->\n\n<!-- /generated: rules -->\nEnd\n"
	got, err := g.update(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Title\n\n<!-- generated: tree -->\n\n| directory ",
		"\n| `cmd/x` | serves a\\|b |\n",
		"\n| `lib` | reads files |\n",
		"\n| `tool` | is linked with nothing |\n",
		"|\n\n<!-- /generated: tree -->\n\nText\n",
		"<!-- generated: imports -->\n\n| package | imports | libraries |\n|---|---|---|\n| `cmd/x` | lib | example.org/y |\n\n<!--",
		"\n| `job` reaches only the standard library | ",
		"<!-- /generated: rules -->\nEnd\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "old") {
		t.Errorf("an old section stands:\n%s", got)
	}
	if again, err := g.update(got); err != nil || again != got {
		t.Errorf("a second update changed the page: %v\n%s", err, again)
	}
	if _, err := g.update(strings.Replace(page, "<!-- /generated: rules", "<!--", 1)); err == nil {
		t.Error("a page without the end of a section was accepted")
	}
	silent := graphOf(t, map[string]string{"lib/lib.go": "package lib"})
	if _, err := silent.update(page); err == nil || !strings.Contains(err.Error(), "lib: the package comment must") {
		t.Errorf("a package without a comment: %v", err)
	}
}
