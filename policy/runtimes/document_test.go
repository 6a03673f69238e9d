package runtimes

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// documented returns a runtime's line in the documentation.
func documented(r Runtime) string {
	code := func(list []string) string { return "`" + strings.Join(list, "` `") + "`" }
	source := code(strings.Fields(r.Debian))
	if r.Debian == "" {
		source = "none: `" + r.Elsewhere + "`"
	}
	return fmt.Sprintf("| `%s` | %s | `%s` | %s | %s |", r.Name, code(r.Candidates()), r.File, r.Run, source)
}

// TestDocument checks that docs/reference/runtimes.md contains the table, and that scripts/setup installs what its tests
// need.
func TestDocument(t *testing.T) {
	root := sandboxtest.ModuleRoot(t)
	page, err := os.ReadFile(filepath.Join(root, "docs", "reference", "runtimes.md"))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, r := range table {
		want = append(want, documented(r))
	}
	_, rest, _ := strings.Cut(string(page), "<!-- runtimes -->")
	rest, _, _ = strings.Cut(rest, "<!-- /runtimes -->")
	if got := regexp.MustCompile("(?m)^\\| `.*$").FindAllString(rest, -1); !slices.Equal(got, want) {
		t.Errorf("the page has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, dir := range goCaches {
		if !strings.Contains(string(page), "`"+dir+"`") {
			t.Errorf("the page does not name %s", dir)
		}
	}
	setup, err := os.ReadFile(filepath.Join(root, "scripts", "setup"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range table {
		for _, name := range strings.Fields(r.Debian + strings.TrimPrefix(r.Elsewhere, "npm install --global")) {
			if !regexp.MustCompile(`(?m)^(?:test|build) +`+regexp.QuoteMeta(name)+`[@ ]`).Match(setup) && !slices.Contains(implied, name) {
				t.Errorf("scripts/setup does not install %s", name)
			}
		}
	}
}

// implied are packages that others in the list depend on, or that are always installed, or that the tests of Go need.
var implied = []string{"bash", "golang-go", "libmono-system-core4.0-cil"}
