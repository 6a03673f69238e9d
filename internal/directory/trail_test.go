package directory

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTrail follows links as the kernel does: relative, absolute, with "..", through others, in a circle, to nothing.
func TestTrail(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		os.MkdirAll(top+"/a/b", 0o700), os.Mkdir(top+"/c", 0o700),
		os.Symlink("../c", top+"/a/up"), os.Symlink(top+"/a/up/../a", top+"/abs"),
		os.Symlink("circle", top+"/circle"), os.Symlink("none/x", top+"/dangling"),
	); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/a/b":        "/a /a/b /a/b",
		"/a/./b/../x": "/a /a/b /a/x /a/x",
		"/a/up/file":  "/a /a/up /c /c/file /c/file",
		"/abs/b":      "/abs /a /a/up /c /a /a/b /a/b",
		"/dangling/y": "/dangling /none /none/x /none/x/y /none/x/y",
	} {
		var got []string
		for _, p := range Trail(top + path) {
			if p, below := strings.CutPrefix(p, top); below && p != "" {
				got = append(got, p)
			}
		}
		if !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: %v, want %s", path, got, want)
		}
	}
	if n := len(Trail(top + "/circle")); n > 200 {
		t.Errorf("a circle has %d steps", n)
	}
	passes := func(path, dir string) bool { return Passes(path, Trail(path), dir) }
	if !passes(top+"/abs/b", top+"/c") || passes(top+"/a/b", top+"/c") || !passes(top+"/c", top+"/c") {
		t.Error("Passes")
	}
}
