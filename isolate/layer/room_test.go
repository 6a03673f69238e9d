package layer

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

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
	return open(t, filepath.Join(dir, "layers"), Options{Reserve: MaxBytes}), dir
}

func open(t *testing.T, path string, o Options, beside ...*Store) *Store {
	t.Helper()
	s, err := Open(path, o, beside...)
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
	a, err := s.Reopen("a", at, Client{}, files)
	if err != nil {
		t.Fatal(err)
	}
	second := mountPoint(t, dir, "second")
	if _, err := s.Reopen("b", second, Client{}, files); !errors.Is(err, ErrNoRoom) {
		t.Errorf("more than the free space: %v", err)
	}
	fill(t, filepath.Join(other, "x"), 32<<20) // this space was reserved already
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	b, err := s.Reopen("b", at, Client{}, files)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, filepath.Join(at, "x"), 48<<20)
	if err := errors.Join(b.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	if b, err = s.Reopen("b", at, Client{}, files); err != nil {
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
	second := open(t, filepath.Join(dir, "layers"), Options{Reserve: MaxBytes})
	images := open(t, filepath.Join(dir, "images"), Options{}, second)
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

// sparse returns a store on a new file system of mib MiB whose layers have 8 MiB each for certain.
func sparse(t *testing.T, mib string) (s *Store, dir string) {
	t.Helper()
	_, dir = disk(t, mib)
	if !canLimit() {
		t.Skip("this kernel, or its sysfs, does not limit ext4")
	}
	return open(t, filepath.Join(dir, "sparse"), Options{Reserve: 8 << 20}), dir
}

// make makes a layer of a user, larger than the disk.
func (s *Store) make(t *testing.T, dir, name string, user uint32) *Layer {
	t.Helper()
	l, err := s.Make(mountPoint(t, dir, name), Client{UID: user}, 1<<30, files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// begin has a job begin in a layer, until the function that is returned is called.
func begin(t *testing.T, l *Layer) (end func()) {
	t.Helper()
	if err := l.JobBegins(); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := l.JobEnds(); err != nil {
			t.Error(err)
		}
	}
}

// grow writes to a layer, as its job would, until that fails, and returns how many bytes were written, and the error. The layer is
// asked to grow again and again meanwhile, as while a job runs.
func grow(t *testing.T, l *Layer, most int) (written int, short bool, failed error) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(l.Path(), "grown"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	chunk := make([]byte, 4<<20)
	for written < most && failed == nil {
		n, err := f.Write(chunk)
		written, failed = written+n, err
		if err == nil {
			failed = f.Sync() // what is accepted gets to the disk
		}
		u, err := l.Usage()
		if err != nil {
			t.Fatal(err)
		}
		now, err := l.Refill(u)
		if err != nil {
			t.Fatal(err)
		}
		short = short || now
	}
	return written, short, failed
}

// TestSparse: layers that are together far larger than the disk can be open, and each may grow as far as there is room.
func TestSparse(t *testing.T) {
	s, dir := sparse(t, "640") // 600 can be used
	var all []*Layer
	for n := range 20 {
		all = append(all, s.make(t, dir, string(rune('a'+n)), 1001))
	}
	end := begin(t, all[7])
	if n, short, err := grow(t, all[7], 100<<20); err != nil || n != 100<<20 {
		t.Errorf("%d MiB were written, short %v, %v", n>>20, short, err)
	}
	end()
	if u, err := all[7].Usage(); err != nil || u.Used < 100<<20 || u.Free > 10<<20 {
		t.Errorf("without a job, the layer may still grow: %+v, %v", u, err)
	}
}

// TestFullDisk: a user who fills all layers there are gets ENOSPC in them, and nothing that was written is lost. Another user can
// work, what is open has what it has for certain, and the reserve of the host is not touched.
func TestFullDisk(t *testing.T) {
	s, dir := sparse(t, "640")
	idle := s.make(t, dir, "idle", 1002)
	var greedy []*Layer
	for n := range 4 {
		greedy = append(greedy, s.make(t, dir, string(rune('a'+n)), 1001))
		defer begin(t, greedy[n])()
	}
	sum := 0
	for round := range 2 { // again: what others left is divided again
		for _, l := range greedy {
			n, short, err := grow(t, l, 1<<30)
			if !errors.Is(err, unix.ENOSPC) || !short {
				t.Errorf("round %d: %d MiB were written, short %v, %v", round, n>>20, short, err)
			}
			sum += n
		}
	}
	if sum < 350<<20 || sum > 450<<20 { // three quarters of 600, less what the others have for certain
		t.Errorf("one user has written %d MiB", sum>>20)
	}
	for _, l := range greedy {
		if err := l.Sync(); err != nil {
			t.Errorf("what was written is lost: %v", err)
		}
	}
	if err := os.Remove(filepath.Join(greedy[0].Path(), "grown")); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Eventually(t, 5*time.Second, "a layer gets nothing of what another one has freed", func() bool {
		u, err := greedy[1].Usage()
		if err == nil {
			_, err = greedy[1].Refill(u)
		}
		return err != nil || u.Free > 30<<20
	})
	if n, _, err := grow(t, greedy[1], 20<<20); err != nil || n != 20<<20 {
		t.Errorf("after files were removed: %d MiB, %v", n>>20, err)
	}
	if n, _, err := grow(t, idle, 1<<20); err != nil || n < 1<<20 {
		t.Errorf("a layer without a job of another user lacks what it has for certain: %d, %v", n, err)
	}
	other := s.make(t, dir, "other", 1002)
	defer begin(t, other)()
	if n, _, err := grow(t, other, 60<<20); err != nil || n != 60<<20 {
		t.Errorf("another user: %d MiB, %v", n>>20, err)
	}
	_, _, _ = grow(t, other, 1<<30)
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || int64(st.Bavail)*st.Bsize < 40<<20 {
		t.Errorf("%d MiB of the disk are left, %v, want the sixteenth of the host", int64(st.Bavail)*st.Bsize>>20, err)
	}
}

// TestUsersShare: what jobs of several users may write at present is together no more than there is.
func TestUsersShare(t *testing.T) {
	s, dir := sparse(t, "640") // 600 can be used
	free := int64(0)
	var all []*Layer
	for n := range 3 {
		l := s.make(t, dir, string(rune('a'+n)), uint32(1001+n))
		defer begin(t, l)()
		all = append(all, l)
	}
	for _, l := range all {
		u, err := l.Usage()
		if err != nil {
			t.Fatal(err)
		}
		free += u.Free
	}
	if free > 600<<20 || free < 400<<20 {
		t.Errorf("3 users may write %d MiB, want nearly 600", free>>20)
	}
}

// TestReopenInRoom: a kept layer needs no more room to be opened again than a new one.
func TestReopenInRoom(t *testing.T) {
	s, dir := sparse(t, "160") // 150 can be used
	at := mountPoint(t, dir, "mount")
	l, err := s.Make(at, Client{}, 1<<30, files)
	if err == nil {
		err = l.Keep("mine")
	}
	if err != nil {
		t.Fatal(err)
	}
	fill(t, filepath.Join(dir, "x"), 100<<20)
	if l, err = s.Reopen("mine", at, Client{}, files); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestShrinks: when others than sessions fill the disk, layers get less.
func TestShrinks(t *testing.T) {
	s, dir := sparse(t, "640")
	l := s.make(t, dir, "a", 1001)
	defer begin(t, l)()
	before, err := l.Usage()
	if err != nil {
		t.Fatal(err)
	}
	fill(t, filepath.Join(dir, "x"), 560<<20)
	defer begin(t, s.make(t, dir, "b", 1001))()
	after, err := l.Usage()
	if err != nil || after.Free > 40<<20 || before.Free < 300<<20 {
		t.Errorf("before %d MiB, after %d MiB, %v", before.Free>>20, after.Free>>20, err)
	}
	if _, _, err := grow(t, l, 1<<30); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("%v", err)
	}
	if err := l.Sync(); err != nil {
		t.Errorf("what was written is lost: %v", err)
	}
}
