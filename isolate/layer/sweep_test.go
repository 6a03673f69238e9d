package layer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/store/volume"
)

// strand creates a loop device that is not detached by itself, as a killed supervisor may leave one, and returns its
// number.
func strand(t *testing.T, file *os.File) int {
	t.Helper()
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	l, err := volume.Attach(file, false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	info, err := unix.IoctlLoopGetStatus64(int(l.Device.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	info.Flags &^= unix.LO_FLAGS_AUTOCLEAR
	if err := unix.IoctlLoopSetStatus64(int(l.Device.Fd()), info); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = detach(l.Node(), info.Device) })
	return l.Number
}

// TestSweep: unused loop devices of files with and without a name are detached, and no others.
func TestSweep(t *testing.T) {
	s, dir := store(t)
	used, err := s.Make(mountPoint(t, dir, "mount"), Client{}, size, files)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Openat(int(s.dir.Fd()), ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []func() (*os.File, error){
		func() (*os.File, error) { return os.NewFile(uintptr(fd), "deleted"), nil },
		func() (*os.File, error) {
			return os.OpenFile(filepath.Join(s.path, "named"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		},
		func() (*os.File, error) {
			return os.OpenFile(filepath.Join(dir, "layersfile"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		},
	} {
		file, err := f()
		if err != nil {
			t.Fatal(err)
		}
		strand(t, file)
		file.Close()
	}
	if n, err := s.Sweep(); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := s.Sweep(); n != 0 || err != nil {
		t.Errorf("second sweep: %d, %v", n, err)
	}
	if _, err := used.Usage(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(used.Path(), "x"), []byte("x"), 0o600); err != nil {
		t.Error(err)
	}
	if err := used.Close(); err != nil {
		t.Error(err)
	}
	devices, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	left := 0
	for _, d := range devices {
		if b, _ := os.ReadFile(d); strings.HasPrefix(string(b), dir) {
			left++
		}
	}
	if left != 1 { // the one for the file beside the store
		t.Errorf("%d devices are still attached", left)
	}
}

// TestName: Close keeps a layer with a name, and nobody can open it before; without its name it is gone.
func TestName(t *testing.T) {
	s, dir := store(t)
	at := mountPoint(t, dir, "mount")
	l, err := s.Make(at, Client{}, size, files)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "x"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Name("one"); err != nil || !l.Named() {
		t.Fatal(err)
	}
	if err := l.Sync(); err != nil {
		t.Error(err)
	}
	if _, err := s.Reopen("one", mountPoint(t, dir, "other"), Client{}, files); err == nil {
		t.Fatal("the layer was opened twice")
	}
	if err := s.RemoveUnused("one"); err == nil {
		t.Fatal("the layer was removed while in use")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := s.Reopen("one", at, Client{}, files)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(at, "x")); string(b) != "mine" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if err := errors.Join(again.Close(), s.RemoveUnused("one")); err != nil {
		t.Error(err)
	}
	gone, err := s.Make(at, Client{}, size, files)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(gone.Name("two"), s.Remove("two"), gone.Close()); err != nil {
		t.Error(err)
	}
	if _, err := s.Reopen("two", at, Client{}, files); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the layer still exists: %v", err)
	}
	free(t, dir)
}
