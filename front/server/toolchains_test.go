package server

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// testUser owns the home directories of the tests.
const testUser = 61300

// newHome creates an empty home directory of a user.
func newHome(t *testing.T) homeDir {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root)
	h := homeDir{filepath.Join(sandboxtest.OpenDir(t), "home"), testUser}
	makeDir(t, h.path, testUser, 0o700)
	return h
}

// makeDir creates a directory, and its parents as root.
func makeDir(t *testing.T, path string, uid int, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, mode), os.Chown(path, uid, uid)); err != nil {
		t.Fatal(err)
	}
}

// TestUsableToolchains checks that root accepts from a user's list only directories of that user or of root that can be
// shown.
func TestUsableToolchains(t *testing.T) {
	h := newHome(t)
	at := func(name string) string { return filepath.Join(h.path, name) }
	makeDir(t, at("own"), testUser, 0o755)
	makeDir(t, at("own/deep"), testUser, 0o755)
	makeDir(t, at("roots"), 0, 0o755)
	makeDir(t, at("others"), testUser+1, 0o755)
	makeDir(t, at("closed"), testUser, 0o700)
	makeDir(t, at("repo/tool"), testUser, 0o755)
	makeDir(t, at("mounted"), testUser, 0o755)
	makeDir(t, filepath.Join(filepath.Dir(h.path), "home-of-another"), testUser, 0o755)
	if err := errors.Join(os.WriteFile(at("file"), nil, 0o755), os.Symlink("own", at("link")), os.Symlink("/usr", at("out"))); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("test", at("mounted"), "tmpfs", 0, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(at("mounted"), unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	list := []string{
		at("own"), at("own/deep"), at("roots"), at("others"), at("closed"), at("repo"), at("repo/tool"), at("mounted"), at("file"), at("link"),
		at("link/deep"), at("out/bin"), at("absent"), h.path, h.path + "/", "/", "/usr/lib", "/root", filepath.Dir(h.path) + "/home-of-another", "own", "", at("own") + "/",
		h.path + "/../home/own", h.path + "//own", at("a\nb"), at("a\x00b"), at(strings.Repeat("x/", 3000)),
	}
	got, err := h.usable(list, []string{at("repo/tool/app"), "/elsewhere"})
	if want := []string{at("own"), at("own/deep"), at("roots")}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if got, err := h.usable(slices.Repeat([]string{at("own")}, maxToolchains+1), nil); err == nil {
		t.Errorf("%d toolchains", len(got))
	}
	other := homeDir{h.path, h.uid + 1}
	if got, err := other.usable([]string{at("own")}, nil); err == nil {
		t.Errorf("in another user's home directory: %q", got)
	}
}

// TestUsableCaches checks that the download caches of a user are shown only to jobs in that user's own repositories, and
// programs to jobs in any.
func TestUsableCaches(t *testing.T) {
	h := newHome(t)
	at := func(name string) string { return filepath.Join(h.path, name) }
	list := []string{at("go/pkg/mod/cache/download"), at(".npm/_cacache"), at(".cache/wheelhouse"), at(".cargo/registry"), at("sdk/go1")}
	programs := list[4:]
	for _, path := range list {
		makeDir(t, path, testUser, 0o755)
	}
	own, others, roots := at("app"), at("others"), at("roots")
	makeDir(t, own, testUser, 0o755)
	makeDir(t, others, testUser+1, 0o755)
	makeDir(t, roots, 0, 0o755)
	if err := os.Symlink("app", at("link")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		repos []string
		want  []string
	}{
		{nil, list},
		{[]string{own}, list},
		{[]string{own, others}, programs},
		{[]string{roots}, programs},
		{[]string{at("link")}, programs},
		{[]string{at("absent")}, programs},
	} {
		if got, err := h.usable(list, tt.repos); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, %v; want %q", tt.repos, got, err, tt.want)
		}
	}
	if err := os.Chmod(list[0], 0o750); err != nil {
		t.Fatal(err)
	}
	if got, err := h.usable(list, []string{own}); err != nil || !slices.Equal(got, list[1:]) {
		t.Errorf("closed by its owner: %q, %v", got, err)
	}
}
