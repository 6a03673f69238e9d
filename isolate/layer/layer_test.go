package layer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

const size, files = 32 << 20, 1000

// store returns a store on a real disk, and a directory for mount points.
func store(t *testing.T) (s *Store, mounts string) { return storeIn(t, func(string) {}) }

// storeIn returns a store in a directory that prepare has prepared.
func storeIn(t *testing.T, prepare func(dir string)) (s *Store, mounts string) {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.Program("mkfs.ext4"))
	dir := t.TempDir()
	prepare(dir)
	s, err := Open(filepath.Join(dir, "layers"), Options{Reserve: MaxBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, dir
}

func mountPoint(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// free checks that no loop device is attached to a file in dir, or to one without a name there.
func free(t *testing.T, dir string) {
	t.Helper()
	devices, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		if b, _ := os.ReadFile(d); strings.HasPrefix(string(b), dir) {
			t.Errorf("left: %s: %s", d, b)
		}
	}
}

// TestLayer: a layer is a file system of a fixed size, and is gone after Close.
func TestLayer(t *testing.T) {
	s, dir := store(t)
	at := mountPoint(t, dir, "mount")
	l, err := s.Make(at, Client{}, size, files)
	if err != nil {
		t.Fatal(err)
	}
	before, err := l.Usage()
	if err != nil || before.Free < size/2 || before.Free > size || before.FreeFiles < files-100 {
		t.Errorf("%+v, %v", before, err)
	}
	big := make([]byte, 2*size)
	if err := os.WriteFile(filepath.Join(at, "big"), big, 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("writing twice the layer's size: %v", err)
	}
	if u, err := l.Usage(); err != nil || !u.Full() {
		t.Errorf("a full layer has %+v, %v", u, err)
	}
	if err := os.Remove(filepath.Join(at, "big")); err != nil {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		f, err := os.OpenFile(filepath.Join(at, strings.Repeat("x", 1+n%200)+"-"+string(rune('a'+n/200%26))+"-"+string(rune('a'+n/5200%26))), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, unix.ENOSPC) {
			break
		}
		if err != nil || n > 2*files {
			t.Fatalf("file %d: %v", n, err)
		}
		f.Close()
	}
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil || st.Flags&unix.ST_NOSUID == 0 || st.Flags&unix.ST_NODEV == 0 {
		t.Errorf("mounted with flags %x, %v", st.Flags, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if names, err := os.ReadDir(filepath.Join(dir, "layers")); err != nil || len(names) != 1 || names[0].Name() != promisesDir {
		t.Errorf("left: %v, %v", names, err)
	}
	free(t, dir)
}

// TestKeep: a kept layer can be reopened, once at a time.
func TestKeep(t *testing.T) {
	s, dir := store(t)
	at := mountPoint(t, dir, "mount")
	l, err := s.Make(at, Client{}, size, files)
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(at, "file"), []byte("x"), 0o600), l.Keep("mine"))
	}
	if err != nil {
		t.Fatal(err)
	}
	free(t, dir)
	l, err = s.Reopen("mine", at, Client{}, files)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(at, "file")); string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
	second := mountPoint(t, dir, "second")
	if _, err := s.Reopen("mine", second, Client{}, files); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second mount: %v", err)
	}
	if _, err := s.OpenReadOnly("mine", second); err == nil {
		t.Error("a second mount, read-only, succeeded")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	a, err := s.OpenReadOnly("mine", at)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.OpenReadOnly("mine", second)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(second, "file"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("written: %v", err)
	}
	if err := errors.Join(a.Close(), b.Close(), s.Remove("mine")); err != nil {
		t.Error(err)
	}
	if _, err := s.Reopen("mine", at, Client{}, files); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("removed: %v", err)
	}
	free(t, dir)
}

// TestKeepTwice: a name is used once, and a layer that could not be kept is gone.
func TestKeepTwice(t *testing.T) {
	s, dir := store(t)
	for n, want := range []error{nil, unix.EEXIST} {
		at := mountPoint(t, dir, string(rune('a'+n)))
		l, err := s.Make(at, Client{}, size, files)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Keep("mine"); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	free(t, dir)
}

// TestRoom: a layer larger than the free space is refused.
func TestRoom(t *testing.T) {
	s, dir := store(t)
	at := mountPoint(t, dir, "mount")
	if _, err := s.Make(at, Client{}, MaxBytes, files); !errors.Is(err, ErrNoRoom) {
		t.Errorf("a layer of a TiB: %v", err)
	}
}

// TestBounds: Make refuses sizes outside of the bounds.
func TestBounds(t *testing.T) {
	s, dir := store(t)
	at := mountPoint(t, dir, "mount")
	for _, b := range [][2]int64{{0, files}, {MinBytes - 1, files}, {MaxBytes + 1, files}, {size, 0}, {size, size}} {
		if l, err := s.Make(at, Client{}, b[0], b[1]); err == nil {
			l.Close()
			t.Errorf("a layer of %d bytes, %d files was made", b[0], b[1])
		}
	}
}

// TestMany: concurrent layers do not take each other's loop devices.
func TestMany(t *testing.T) {
	s, dir := store(t)
	var work sync.WaitGroup
	for n := range 8 {
		at := mountPoint(t, dir, string(rune('a'+n)))
		work.Go(func() {
			for range sandboxtest.Scale(10) {
				l, err := s.Make(at, Client{}, MinBytes, MinInodes)
				if err == nil {
					err = errors.Join(os.WriteFile(filepath.Join(at, "x"), nil, 0o600), l.Close())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	work.Wait()
	free(t, dir)
}

// TestStoreIsRoots: a store that other users could change is refused.
func TestStoreIsRoots(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	link := filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o755), os.Symlink(open, link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{open, link} {
		if s, err := Open(path, Options{}); err == nil {
			s.Close()
			t.Errorf("%s was opened", path)
		}
	}
}

// TestLost: a write that failed, since the store's file system was full, is reported by each Sync from then on, also after the
// layer was kept and opened again.
func TestLost(t *testing.T) {
	s, dir := storeIn(t, func(dir string) {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m,mode=0700"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	})
	at := mountPoint(t, t.TempDir(), "mount")
	l, err := s.Make(at, Client{}, 32<<20, files)
	if err != nil {
		t.Fatal(err)
	}
	big := filepath.Join(at, "big")
	if err := errors.Join(os.WriteFile(big, []byte("x"), 0o600), l.Sync()); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 128<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("filled: %v", err)
	}
	f, err := os.OpenFile(big, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(make([]byte, 8<<20))
	if synced := f.Sync(); err != nil || synced == nil {
		t.Errorf("%v, %v: the write did not fail", err, synced)
	}
	if err := errors.Join(f.Close(), os.Remove(filler)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.Sync(); !errors.Is(err, ErrLost) || !errors.Is(l.Lost(), ErrLost) {
			t.Errorf("%v", err)
		}
	}
	if err := errors.Join(l.Name("mine"), l.Close()); err != nil {
		t.Fatal(err)
	}
	l, err = s.Reopen("mine", at, Client{}, files)
	if errors.Is(err, ErrDamaged) { // metadata was lost, too
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Sync(); !errors.Is(err, ErrLost) {
		t.Errorf("opened again: %v", err)
	}
	if err := l.Keep("other"); !errors.Is(err, ErrLost) {
		t.Errorf("kept: %v", err)
	}
	if _, err := s.OpenReadOnly("other", at); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("kept with data that was lost: %v", err)
	}
}
