package host

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

func TestMountPoints(t *testing.T) {
	got := mountPoints("36 35 98:0 / / rw - ext4 /dev/root rw\n37 36 0:5 / /a\\040b\\134c rw shared:1 - tmpfs tmpfs rw\nshort\n")
	if want := []string{"/", `/a b\c`}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestMountsBelow checks that mounts are found which appear later, and no longer when they are gone.
func TestMountsBelow(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	dir := t.TempDir()
	sub := filepath.Join(dir, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	var m Mounts
	below := func(want ...string) {
		t.Helper()
		for range 2 {
			if got, err := m.Below(dir, 8); err != nil || !slices.Equal(got, want) {
				t.Errorf("%q, %v, want %q", got, err, want)
			}
		}
	}
	below()
	if err := unix.Mount("tmpfs", sub, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	below("sub")
	moved := filepath.Join(dir, "moved")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "a/b"), 0o755), unix.Mount("tmpfs", filepath.Join(dir, "a/b"), "tmpfs", 0, "size=64k")); err != nil {
		t.Fatal(err)
	}
	below("sub", "a/b")
	if err := os.Rename(filepath.Join(dir, "a"), moved); err != nil { // is no event
		t.Fatal(err)
	}
	below("sub", "moved/b")
	inner := filepath.Join(moved, "b/inner")
	if err := errors.Join(os.Mkdir(inner, 0o755), unix.Mount("tmpfs", inner, "tmpfs", 0, "size=64k")); err != nil {
		t.Fatal(err)
	}
	below("sub", "moved/b") // inner is the other file system's place
	if err := errors.Join(unix.Unmount(inner, 0), unix.Unmount(filepath.Join(moved, "b"), 0)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(sub, 0); err != nil {
		t.Fatal(err)
	}
	below()
}
