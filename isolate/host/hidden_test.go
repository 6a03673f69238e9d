package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHiddenPaths: paths that are not readable by every user are found, also those added later; mount points count as
// hidden.
func TestHiddenPaths(t *testing.T) {
	dir := t.TempDir()
	make := func(name string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			mkdir(t, path, 0)
		} else {
			put(t, path, "", mode, 0)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"", "open", "open/sub", "closed", "mount"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil && d != "" {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	make("open/file", 0o644)
	make("open/group", 0o640)
	make("open/sub/secret", 0o600)
	make("closed/file", 0o644)
	if err := os.Chmod(filepath.Join(dir, "closed"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/shadow", filepath.Join(dir, "open", "link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", filepath.Join(dir, "mount"), "tmpfs", 0, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(dir, "mount"), unix.MNT_DETACH) })
	var h HiddenPaths
	check := func(want ...string) {
		t.Helper()
		if got, err := h.Find(dir); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	first := []string{"closed", "mount", "open/group", "open/sub/secret"}
	check(first...)
	check(first...)
	make("open/sub/later", 0o600)
	check("closed", "mount", "open/group", "open/sub/later", "open/sub/secret")
	if err := os.Chmod(filepath.Join(dir, "open", "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	check("closed", "mount", "open/group", "open/sub")
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if list, err := h.Find(dir); err == nil {
		t.Errorf("a directory that is not readable by every user: %q", list)
	}
}
