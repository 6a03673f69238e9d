package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"corral/internal/test/example"
)

// commandPages returns the pages whose commands people copy, from the root of the repository.
func commandPages(t *testing.T) []string {
	t.Helper()
	list := []string{"README.md"}
	for _, pattern := range []string{"docs/*.md", "docs/how-to/*.md", "docs/reference/*.md", "docs/explanation/*.md"} {
		files, err := filepath.Glob("../" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			list = append(list, strings.TrimPrefix(file, "../"))
		}
	}
	return list
}

// TestCommands: something runs each block of commands of the documentation, or the page says why nothing does. The test that a page
// names exists, and a script of the guest follows each page with blocks to follow.
func TestCommands(t *testing.T) {
	tests := testNames(t)
	var scripts string
	files, err := filepath.Glob("../scripts/package/guest*")
	if err != nil || len(files) < 5 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		scripts += read(t, file)
	}
	count := map[string]int{}
	for _, page := range commandPages(t) {
		listings, err := example.Listings("../" + page)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, l := range listings {
			count[l.How]++
			if _, err := l.Steps(); err != nil {
				t.Errorf("%s: %v", page, err)
			}
			_, err := os.Stat("../" + l.What)
			switch {
			case l.How == "":
				t.Errorf("%s:%d: nothing says what runs this block: see internal/test/example/listing.go", page, l.Line)
			case l.How == example.Tested && !tests[l.What] && err != nil:
				t.Errorf("%s:%d: there is neither a test nor a script %s", page, l.Line, l.What)
			case l.How == example.Run && !strings.Contains(scripts, page):
				t.Errorf("%s:%d: no script of the guest follows this page", page, l.Line)
			}
		}
	}
	t.Logf("blocks: %d are followed in the guest, %d have another test, %d are not run", count[example.Run], count[example.Tested], count[example.NotRun])
}

// TestAgentTools: commands that add corral to an agent host give the agent the tools that replace its shell.
func TestAgentTools(t *testing.T) {
	pages := append(commandPages(t), "front/server/mcp.go")
	adds := regexp.MustCompile(`(?:claude|codex) mcp add corral -- .*`)
	n := 0
	for _, page := range pages {
		for _, line := range adds.FindAllString(read(t, "../"+page), -1) {
			n++
			if !strings.Contains(line, "corral mcp --tools agent ") {
				t.Errorf("%s: without --tools agent: %s", page, line)
			}
		}
	}
	if n < 4 {
		t.Errorf("%d commands are found", n)
	}
}

// TestGroups: a group that a page makes is none of those that the package makes, so groupadd(8) does not fail.
func TestGroups(t *testing.T) {
	made := map[string]bool{}
	for line := range strings.Lines(read(t, "../scripts/package/files/sysusers.conf")) {
		if f := strings.Fields(line); len(f) > 1 && (f[0] == "g" || f[0] == "u") {
			made[f[1]] = true
		}
	}
	groups := regexp.MustCompile(`groupadd (?:--?\S+ )*(\S+)`)
	n := 0
	for _, page := range commandPages(t) {
		for _, m := range groups.FindAllStringSubmatch(read(t, "../"+page), -1) {
			if n++; made[m[1]] {
				t.Errorf("%s: %s: the package has made it", page, m[0])
			}
		}
	}
	if n == 0 || !made["corral"] {
		t.Errorf("%d groups of pages and %v of the package are found", n, made)
	}
}

// testNames returns the names of all tests of the module.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	name := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != ".." && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			for _, m := range name.FindAllStringSubmatch(read(t, path), -1) {
				names[m[1]] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
