package host

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"corral/egress/store"
	"corral/internal/test/sandboxtest"
	"corral/store/volume"
)

// TestCache: the directory of a user's packages belongs to the process that gets it, is of the size that the configuration says, and is
// reached by nobody else. What is in it stays for the next process, unless the size is another one.
func TestCache(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	path := filepath.Join(t.TempDir(), "state")
	s, err := OpenState(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	open := func(owner uint32, keep int64) *os.File {
		t.Helper()
		dir, size, err := s.Cache(1000, owner, keep)
		if err != nil {
			t.Fatal(err)
		}
		if size > keep || size < keep*3/4 {
			t.Errorf("%d bytes of %d", size, keep)
		}
		var st unix.Stat_t
		var fs unix.Statfs_t
		err = errors.Join(unix.Fstat(int(dir.Fd()), &st), unix.Fstatfs(int(dir.Fd()), &fs))
		if err != nil || st.Uid != owner || st.Gid != owner || st.Mode != unix.S_IFDIR|0o700 {
			t.Errorf("%d:%d %o, %v", st.Uid, st.Gid, st.Mode, err)
		}
		if total := int64(fs.Blocks) * fs.Bsize; total > keep || int64(fs.Files) > store.MaxEntries+spareFiles || int64(fs.Files) < keep/store.BlockSize-64 {
			t.Errorf("%d bytes and %d files fit into it", total, fs.Files)
		}
		return dir
	}
	const keep = 32 << 20
	dir := open(1<<20, keep)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := errors.Join(os.WriteFile(secret, nil, 0o600), unix.Symlinkat(secret, int(dir.Fd()), "link")); err != nil {
		t.Fatal(err)
	}
	again := open(1<<20+1, keep)
	var st unix.Stat_t
	if err := unix.Fstatat(int(again.Fd()), "link", &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Uid != 0 {
		t.Errorf("a link in it belongs to %d, %v", st.Uid, err)
	}
	if err := unix.Stat(secret, &st); err != nil || st.Uid != 0 {
		t.Errorf("the target of a link belongs to %d, %v", st.Uid, err)
	}
	dir.Close()
	again.Close()
	other := open(1<<20, 2*keep)
	if err := unix.Fstatat(int(other.Fd()), "link", &st, unix.AT_SYMLINK_NOFOLLOW); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a link of the former volume: %v", err)
	}
	other.Close()
	if names, err := os.ReadDir(filepath.Join(path, "cache")); err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
	if err := unix.Stat(filepath.Join(path, "cache"), &st); err != nil || st.Uid != 0 || st.Mode != unix.S_IFDIR|0o700 {
		t.Errorf("%d %o, %v", st.Uid, st.Mode, err)
	}
	if err := os.Chmod(filepath.Join(path, "cache"), 0o777); err != nil {
		t.Fatal(err)
	}
	if dir, _, err := s.Cache(1001, 1<<20, keep); err == nil {
		dir.Close()
		t.Error("a directory that others can write is accepted")
	}
}

// TestCacheSizes: whatever the configuration allows is a size that a volume may have.
func TestCacheSizes(t *testing.T) {
	for _, keep := range []int64{1, volume.MinBytes, volume.MinBytes + 1, 10 << 30, 1 << 50} {
		if size := sizeOf(keep); size.Bytes < volume.MinBytes || size.Bytes > volume.MaxBytes || size.Inodes > size.Bytes/4096 || size.Inodes < min(store.MaxEntries, size.Bytes/4096) {
			t.Errorf("%d bytes: %+v", keep, size)
		}
	}
}
