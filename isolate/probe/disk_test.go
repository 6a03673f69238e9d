package probe

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"corral/isolate/inside"
)

// mountDisk mounts a new ext4 file system, and the same read-only at a second place.
func mountDisk(t *testing.T) (dir, readOnly string) {
	t.Helper()
	top := t.TempDir()
	image, dir, readOnly := filepath.Join(top, "image"), filepath.Join(top, "dir"), filepath.Join(top, "ro")
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	for _, path := range []string{dir, readOnly} {
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	}
	run("mke2fs", "-q", "-t", "ext4", image, "4M")
	run("mount", "-o", "loop", image, dir)
	run("mount", "--bind", "-o", "ro", dir, readOnly)
	return dir, readOnly
}

// TestDisk: while a directory of a disk is held, properties of the disk are read without a helper, those of the mount through which it
// was opened included. Nothing else is read without one.
func TestDisk(t *testing.T) {
	p := startProber(t)
	path, path2 := mountDisk(t)
	dir, readOnly, elsewhere := opened(t, path), opened(t, path2), opened(t, "/dev/shm")
	if err := os.WriteFile(path+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	file := opened(t, path+"/file")
	want := map[*os.File]inside.Probed{}
	for _, f := range []*os.File{dir, readOnly, elsewhere, file} {
		found, err := p.FileSystem(owner, f)
		if err != nil {
			t.Fatal(err)
		}
		want[f] = found
	}
	if want[dir].FSFlags&unix.ST_RDONLY != 0 || want[readOnly].FSFlags&unix.ST_RDONLY == 0 {
		t.Errorf("the helper: %+v, %+v", want[dir], want[readOnly])
	}
	check := func(when string, without ...*os.File) {
		t.Helper()
		for f, found := range want {
			got, ok := p.fromDisk(f)
			expected := false
			for _, w := range without {
				expected = expected || f == w
			}
			if ok != expected || ok && got != found {
				t.Errorf("%s: %s: %+v, %v, want %+v, %v", when, f.Name(), got, ok, found, expected)
			}
		}
	}
	check("nothing held")
	served := want[dir]
	served.FSType = unix.FUSE_SUPER_MAGIC // of a block device, too
	for _, found := range []inside.Probed{served, want[elsewhere], want[file]} {
		defer p.Hold(found)()
	}
	check("directories that are not on a disk are held")
	forget, forgetToo := p.Hold(want[dir]), p.Hold(want[readOnly])
	check("held twice", dir, readOnly)
	forget()
	check("held once", dir, readOnly)
	p.mu.Lock()
	idle := p.idle
	p.idle = nil // FileSystem would start another
	p.mu.Unlock()
	if found, err := p.FileSystem(owner, readOnly); err != nil || found != want[readOnly] || len(p.idle) != 0 {
		t.Errorf("%+v, %v, %d helpers", found, err, len(p.idle))
	}
	p.idle = idle
	forgetToo()
	check("no more held")
}
