package edit

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestRefusedCreation checks that an edit that is refused leaves no directories that it has made, and those with files of others.
func TestRefusedCreation(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "there/f"), "x\n")
	for name, r := range map[string]Request{
		"a git directory":  {Path: "a/b/.git/x", Old: ptr(""), New: ptr("x")},
		"out":              {Path: "a/../../x", Old: ptr(""), New: ptr("x")},
		"a long name":      {Path: "a/b/" + strings.Repeat("n", 300), Old: ptr(""), New: ptr("x")},
		"a long directory": {Path: "there/b/" + strings.Repeat("n", 300) + "/f", Old: ptr(""), New: ptr("x")},
		"another file":     {Path: "a/b/c", Patch: ptr("--- /dev/null\n+++ b/other\n@@ -0,0 +1 @@\n+x\n")},
	} {
		if _, err := run(t, root, r); err == nil {
			t.Errorf("%s: not refused", name)
		}
		list, err := filepath.Glob(filepath.Join(root, "*"))
		in, err2 := filepath.Glob(filepath.Join(root, "there", "*"))
		if err != nil || err2 != nil || len(list) != 1 || len(in) != 1 {
			t.Errorf("%s: left %q %q", name, list, in)
		}
	}
}

// TestPutAside checks that a version of a file which an edit could not put back outlives later edits.
func TestPutAside(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "f"), "old\n")
	for _, want := range []string{"f.version-1", "f.version-2"} {
		write(t, filepath.Join(root, temporary), want)
		p, err := find(root, "f", false)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.putAside(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		p.close()
	}
	if _, err := run(t, root, Request{Path: "f", Old: ptr("old"), New: ptr("new")}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"f": "new\n", "f.version-1": "f.version-1", "f.version-2": "f.version-2"} {
		if got := content(t, filepath.Join(root, name)); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
