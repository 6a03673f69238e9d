package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestWalk: the names that an overlay keeps for a directory show in the time that it takes to pass them. The position is as before.
func TestWalk(t *testing.T) {
	p := startProber(t)
	base := t.TempDir()
	for _, dir := range []string{"lower/many", "lower/few", "upper/many", "upper/few", "work", "merged"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5000 {
		if err := os.WriteFile(fmt.Sprintf("%s/lower/many/%d", base, i), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	options := fmt.Sprintf("lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", base, base, base)
	if err := unix.Mount("overlay", base+"/merged", "overlay", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(base+"/merged", unix.MNT_DETACH) })
	walk := func(name string, read int) (took time.Duration) {
		t.Helper()
		dir, err := os.Open(filepath.Join(base, "merged", name))
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		before, err := dir.Readdirnames(read)
		if err != nil {
			t.Fatal(err)
		}
		position, err := unix.Seek(int(dir.Fd()), 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Dup(int(dir.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		if took, err = p.Walk(owner, os.NewFile(uintptr(fd), ""), time.Minute); err != nil || took <= 0 {
			t.Fatalf("%s: %v, %v", name, took, err)
		}
		after, err := dir.Readdirnames(-1)
		if err != nil {
			t.Fatal(err)
		}
		if now, err := unix.Seek(int(dir.Fd()), 0, 1); err != nil || now < position {
			t.Errorf("%s: position %d, then %d, %v", name, position, now, err)
		}
		if n := len(before) + len(after); name == "many" && n != 5000 {
			t.Errorf("%d names, want 5000", n)
		}
		return took
	}
	if few, many := walk("few", -1), walk("many", 100); many <= few {
		t.Errorf("few names take %v, many %v", few, many)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := p.Walk(owner, r, time.Minute); err == nil {
		t.Error("a pipe has a position")
	}
}
