package door

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestVersions: each way in which a file of names changes is seen, and a file that not everybody may read is none.
func TestVersions(t *testing.T) {
	dir := t.TempDir()
	path, behind := filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "stub")
	put := func(path, content string) error { return os.WriteFile(path, []byte(content), 0o644) } //nolint:gosec // as in /etc
	before := lookAt(path)
	if before != (version{}) {
		t.Errorf("no file: %+v", before)
	}
	for _, tt := range []struct {
		name   string
		change func() error
		none   bool
	}{
		{"made", func() error { return put(path, "nameserver 192.0.2.1\n") }, false},
		{"longer", func() error { return put(path, "nameserver 192.0.2.11\n") }, false},
		{"renamed over", func() error { return errors.Join(put(behind, "nameserver 192.0.2.12\n"), os.Rename(behind, path)) }, false},
		{"a link", func() error {
			return errors.Join(put(behind, "nameserver 192.0.2.13\n"), os.Remove(path), os.Symlink(behind, path))
		}, false},
		{"renamed behind the link", func() error {
			return errors.Join(put(behind+"2", "nameserver 192.0.2.14\n"), os.Rename(behind+"2", behind))
		}, false},
		{"the link leads elsewhere", func() error {
			return errors.Join(put(behind+"3", "nameserver 192.0.2.15\n"), os.Symlink(behind+"3", behind+"4"), os.Rename(behind+"4", path))
		}, false},
		{"the link leads nowhere", func() error { return os.Remove(behind + "3") }, true},
		{"for root alone", func() error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) }, true},
		{"for everybody", func() error { return os.Chmod(path, 0o644) }, false},
		{"a pipe", func() error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o666)) }, true},
		{"a directory", func() error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o755)) }, true},
	} {
		if err := tt.change(); err != nil {
			t.Fatal(err)
		}
		f := openNames(path)
		if f != nil {
			f.Close()
		}
		now := lookAt(path)
		if none := now == (version{}); none != tt.none || none != (f == nil) || now == before && !none {
			t.Errorf("%s: %+v, before %+v, opened %v", tt.name, now, before, f != nil)
		}
		before = now
	}
}
