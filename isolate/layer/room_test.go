package layer

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// disk returns a store on a new file system of mib MiB.
func disk(t *testing.T, mib string) (s *Store, dir string) {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.Program("mkfs.ext4"))
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size="+mib+"m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.UMOUNT_NOFOLLOW); err != nil {
			t.Error(err)
		}
	})
	return open(t, filepath.Join(dir, "layers")), dir
}

func open(t *testing.T, path string, beside ...*Store) *Store {
	t.Helper()
	s, err := Open(path, beside...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// fill writes n bytes to the disk.
func fill(t *testing.T, path string, n int) {
	t.Helper()
	if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestKeptAreCounted: a kept layer grows no further than the space that is not reserved for others.
func TestKeptAreCounted(t *testing.T) {
	s, dir := disk(t, "160") // 150 can be reserved
	at, other := mountPoint(t, dir, "mount"), mountPoint(t, dir, "other")
	for _, name := range []string{"a", "b"} {
		l, err := s.Make(at, Client{}, 64<<20, files)
		if err == nil {
			err = l.Keep(name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := s.Make(other, Client{}, 64<<20, files)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Reopen("a", at, Client{})
	if err != nil {
		t.Fatal(err)
	}
	second := mountPoint(t, dir, "second")
	if _, err := s.Reopen("b", second, Client{}); !errors.Is(err, ErrNoRoom) {
		t.Errorf("more than the free space: %v", err)
	}
	fill(t, filepath.Join(other, "x"), 32<<20) // this space was reserved already
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	b, err := s.Reopen("b", at, Client{})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, filepath.Join(at, "x"), 48<<20)
	if err := errors.Join(b.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	if b, err = s.Reopen("b", at, Client{}); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	// Its own 48 MiB are not reserved again.
	if l, err = s.Make(other, Client{}, 80<<20, files); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestSupervisorsCountTogether: space reserved by one process cannot be reserved by another, until the first one ends in
// whatever way.
func TestSupervisorsCountTogether(t *testing.T) {
	s, dir := disk(t, "128")
	at, other := mountPoint(t, dir, "mount"), mountPoint(t, dir, "other")
	second := open(t, filepath.Join(dir, "layers"))
	images := open(t, filepath.Join(dir, "images"), second)
	l, err := s.Make(at, Client{}, 64<<20, files)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Store{second, images} {
		if _, err := s.Make(other, Client{}, 64<<20, files); !errors.Is(err, ErrNoRoom) {
			t.Errorf("the same space was reserved twice: %v", err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if l, err = images.Make(at, Client{}, 64<<20, files); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Make(other, Client{}, 64<<20, files); !errors.Is(err, ErrNoRoom) {
		t.Errorf("the same space was reserved twice: %v", err)
	}
	second.ledger.own.Close() // as if it was killed
	if k, err := s.Make(other, Client{}, 64<<20, files); err != nil {
		t.Errorf("after the other supervisor ended: %v", err)
	} else if err := k.Close(); err != nil {
		t.Error(err)
	}
	names, err := os.ReadDir(filepath.Join(dir, "layers", promisesDir))
	if err != nil || len(names) != 1 || names[0].Name() != s.ledger.name {
		t.Errorf("%v, %v", names, err)
	}
	_ = l.Close()
}

// TestShare: a user must leave a share to the others; root need not.
func TestShare(t *testing.T) {
	const mine = 1001
	for name, tt := range map[string]struct {
		first, next Client
		bytes       int64
		refused     bool
	}{
		"in a share":       {Client{}, Client{UID: mine}, 40 << 20, false},
		"more, much left":  {Client{UID: mine}, Client{UID: mine}, 40 << 20, false},
		"more, all":        {Client{UID: mine}, Client{UID: mine}, 120 << 20, true},
		"another user":     {Client{UID: mine}, Client{UID: mine + 1}, 44 << 20, false},
		"kept, nearly all": {Client{}, Client{UID: mine, Kept: 64 << 20}, 100 << 20, true},
		"root":             {Client{}, Client{}, 120 << 20, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := disk(t, "200") // 187 can be reserved
			at, other := mountPoint(t, dir, "mount"), mountPoint(t, dir, "other")
			l, err := s.Make(at, tt.first, 64<<20, files)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			k, err := s.Make(other, tt.next, tt.bytes, files)
			if err == nil {
				k.Close()
			}
			if errors.Is(err, ErrNoRoom) != tt.refused || err != nil && !tt.refused {
				t.Errorf("%v", err)
			}
		})
	}
}
