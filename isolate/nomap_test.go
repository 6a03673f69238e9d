package isolate

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// TestOperatorMountChanges: changes that the operator makes to a repository's mount apply to the next job, even if
// slots are waiting.
func TestOperatorMountChanges(t *testing.T) {
	f := sharedFront(t)
	if err := unix.Mount(f.Repo, f.Repo, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(f.Repo, unix.MNT_DETACH) //nolint:errcheck // private to this test's mount namespace
	f.Sh("touch before")
	f.full(2)
	if err := unix.Mount("", f.Repo, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := f.Sh("touch after 2>/dev/null || echo refused"); got != "refused" {
			t.Errorf("a job wrote to a read-only repository: %q", got)
		}
	}
	f.full(2)
	if err := unix.Unmount(f.Repo, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Try(f.Spec("true")); err == nil {
		t.Error("a job started in a repository that was unmounted")
	}
}

// TestNoIDMap: the refusal names a file system that does not support id maps.
func TestNoIDMap(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.FileSystem("ramfs"))
	dir := filepath.Join(t.TempDir(), "ram")
	mkdir(t, dir, 0)
	if err := unix.Mount("test", dir, "ramfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	f := newFront(t, func(c *Config) { c.Log = nil }) // the failed build is logged as an error
	f.Repo = dir + "/repo"
	mkdir(t, f.Repo, owner)
	_, err := f.Try(f.Spec("true"))
	refusedAt(t, "ramfs", err, "repo", unix.EINVAL)
	if err == nil || !strings.Contains(err.Error(), "ramfs") || !strings.Contains(err.Error(), "hint: ") {
		t.Errorf("%v", err)
	}
	eventually(t, func() string { return strings.Join(blocks(f.s.InstanceName()), ", ") })
}
