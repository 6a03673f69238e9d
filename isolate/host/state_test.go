package host

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// TestCacheDir: the directory of a user's packages belongs to the process that gets it, below one that nobody else reaches, and what is
// in it is left alone.
func TestCacheDir(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	path := filepath.Join(t.TempDir(), "state")
	s, err := OpenState(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, owner := range []uint32{1 << 20, 1<<20 + 1} {
		dir, err := s.CacheDir(1000, owner)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		var st unix.Stat_t
		if err := unix.Fstat(int(dir.Fd()), &st); err != nil || st.Uid != owner || st.Gid != owner || st.Mode != unix.S_IFDIR|0o700 {
			t.Errorf("%d:%d %o, %v", st.Uid, st.Gid, st.Mode, err)
		}
		link := filepath.Join(path, "cache/1000/link")
		if err := os.Symlink(secret, link); err != nil && owner == 1<<20 {
			t.Fatal(err)
		}
		if err := unix.Lstat(link, &st); err != nil || st.Uid != 0 {
			t.Errorf("a link in it belongs to %d, %v", st.Uid, err)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(secret, &st); err != nil || st.Uid != 0 {
		t.Errorf("the target of a link belongs to %d, %v", st.Uid, err)
	}
	if err := unix.Stat(filepath.Join(path, "cache"), &st); err != nil || st.Uid != 0 || st.Mode != unix.S_IFDIR|0o700 {
		t.Errorf("%d %o, %v", st.Uid, st.Mode, err)
	}
	// What others could have put there is refused.
	cache := filepath.Join(path, "cache")
	for name, change := range map[string]func() error{
		"a link in the user's place": func() error {
			return os.Rename(filepath.Join(cache, "1000/link"), filepath.Join(cache, "1001"))
		},
		"a directory that others can write": func() error { return os.Chmod(cache, 0o777) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if dir, err := s.CacheDir(1001, 1<<20); err == nil {
			dir.Close()
			t.Errorf("%s is accepted", name)
		}
	}
}
