package layer

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/store/volume"
)

// TestExt4: a layer supports what programs expect of a disk's file system.
func TestExt4(t *testing.T) {
	s, dir := store(t)
	at := mountPoint(t, dir, "mount")
	t.Setenv("PATH", dir) // nothing of the caller's is started
	l, err := s.Make(at, Client{}, size, files)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	path := filepath.Join(at, "file")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, 1<<20); err != nil {
		t.Errorf("fallocate: %v", err)
	}
	when := time.Date(2100, 1, 2, 3, 4, 5, 678_901_234, time.UTC)
	if err := os.Chtimes(path, when, when); err != nil {
		t.Fatal(err)
	}
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MTIME|unix.STATX_BTIME, &st); err != nil {
		t.Fatal(err)
	}
	if got := time.Unix(st.Mtime.Sec, int64(st.Mtime.Nsec)); !got.Equal(when) || st.Mask&unix.STATX_BTIME == 0 {
		t.Errorf("%v, want %v; mask %x", got, when, st.Mask)
	}
	var kept unix.Stat_t
	if err := unix.Fstat(int(l.file.Fd()), &kept); err != nil || kept.Blocks*512 > 2<<20 {
		t.Errorf("an empty layer uses %d bytes, %v", kept.Blocks*512, err)
	}
}

// crashed keeps a layer with a file, mounts it again and returns the name of a copy in the state after a crash.
func crashed(t *testing.T, s *Store, dir, at string) string {
	t.Helper()
	l, err := s.Make(at, Client{}, size, files)
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(at, "file"), []byte("x"), 0o600), l.Keep("mine"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if l, err = s.Reopen("mine", at, Client{}, files); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fill(t, filepath.Join(at, "more"), 100)
	copied, err := os.ReadFile(filepath.Join(dir, "layers", "mine"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "layers", "copy"), copied, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return "copy"
}

// debugfs modifies an unmounted file system.
func debugfs(t *testing.T, file, command string) {
	t.Helper()
	path, err := volume.Program("debugfs")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(path, "-w", "-R", command, file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestCrashed: a kept layer that was not unmounted is repaired before it is mounted again, or refused.
func TestCrashed(t *testing.T) {
	for name, tt := range map[string]struct {
		damage string
		want   error
	}{
		"wrong count": {"set_inode_field /file links_count 7", nil},
		"no root":     {"clri <2>", ErrDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := store(t)
			at := mountPoint(t, dir, "mount")
			kept := crashed(t, s, dir, at)
			file := filepath.Join(dir, "layers", kept)
			debugfs(t, file, tt.damage)
			l, err := s.Reopen(kept, at, Client{}, files)
			if !errors.Is(err, tt.want) {
				t.Fatalf("%v, want %v", err, tt.want)
			}
			if err != nil {
				if !strings.Contains(err.Error(), "hint: ") {
					t.Errorf("%v", err)
				}
				free(t, dir)
				return
			}
			var st unix.Stat_t
			if err := unix.Stat(filepath.Join(at, "file"), &st); err != nil || st.Nlink != 1 {
				t.Errorf("%d links, %v", st.Nlink, err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			free(t, dir)
		})
	}
}

// TestUnmountedIsNotChecked: a layer that was closed is mounted again without a check.
func TestUnmountedIsNotChecked(t *testing.T) {
	s, dir := store(t)
	at := mountPoint(t, dir, "mount")
	crashed(t, s, dir, at) // which closes the layer itself
	file := filepath.Join(dir, "layers", "mine")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.lock("mine")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(volume.Repair(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the layer was written to, %v", err)
	}
}

// TestRemoveUnused: an open layer is not removed.
func TestRemoveUnused(t *testing.T) {
	s, dir := store(t)
	at := mountPoint(t, dir, "mount")
	l, err := s.Make(at, Client{}, size, files)
	if err == nil {
		err = l.Keep("mine")
	}
	if err != nil {
		t.Fatal(err)
	}
	if l, err = s.Reopen("mine", at, Client{}, files); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveUnused("mine"); !errors.Is(err, ErrInUse) {
		t.Errorf("%v", err)
	}
	if err := errors.Join(l.Close(), s.RemoveUnused("mine")); err != nil {
		t.Error(err)
	}
	if _, err := s.Reopen("mine", at, Client{}, files); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
