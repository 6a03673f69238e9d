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
