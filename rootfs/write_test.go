package rootfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openTarget returns a new directory and its descriptor.
func openTarget(t testing.TB) (string, int) {
	t.Helper()
	p := tempDir(t)
	f, err := os.Open(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return p, int(f.Fd())
}

// TestOverwrite: files and links that exist are replaced, directories are not, and what links point to stays.
func TestOverwrite(t *testing.T) {
	p, fd := openTarget(t)
	before := Tree{Entries: []Entry{
		{Path: "/etc/a", Mode: 0o600, Data: []byte("old")},
		{Path: "/etc/b", Mode: fs.ModeSymlink | 0o777, Link: "a"},
		{Path: "/etc/dir/c", Mode: 0o644, Data: []byte("kept")},
		{Path: "/etc/link", Mode: fs.ModeSymlink | 0o777, Link: "dir"},
	}}
	after := Tree{Entries: []Entry{
		{Path: "/etc/b", Mode: 0o644, Data: []byte("new")}, {Path: "/etc/new/d", Mode: 0o644}, {Path: "/etc/dir", Mode: fs.ModeDir | 0o755},
	}}
	if err := errors.Join(before.Write(fd), after.Overwrite(fd)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"etc/a": "old", "etc/b": "new", "etc/dir/c": "kept", "etc/new/d": ""} {
		if got, err := os.ReadFile(filepath.Join(p, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := os.Readlink(filepath.Join(p, "etc/b")); err == nil {
		t.Error("the link is still there")
	}
	for e, want := range map[string]error{"/etc/dir": unix.EISDIR, "/etc/link/x": unix.ENOTDIR} {
		if err := (Tree{Entries: []Entry{{Path: e, Mode: 0o644}}}).Overwrite(fd); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", e, err, want)
		}
	}
}

func TestWrite(t *testing.T) {
	p, fd := openTarget(t)
	// The umask of the process must not matter.
	defer unix.Umask(unix.Umask(0o077))
	err := Tree{Entries: []Entry{
		{Path: "/tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
		{Path: "/etc/ssl/certs/a", Mode: 0o644, Data: []byte("a")},
		{Path: "/etc/empty", Mode: 0o755},
		{Path: "/etc/ssl", Mode: fs.ModeDir | 0o711}, // created before as a parent
		{Path: "/home", Mode: fs.ModeDir | 0o711},
		{Path: "/bin", Mode: fs.ModeSymlink | 0o777, Link: "usr/bin"},
		{Path: "/etc/alternatives/cc", Mode: fs.ModeSymlink | 0o777, Link: "/usr/bin/gcc"},
	}}.Write(fd)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{
		"tmp":             fs.ModeDir | fs.ModeSticky | 0o777,
		"etc":             fs.ModeDir | 0o755,
		"etc/ssl":         fs.ModeDir | 0o711,
		"etc/ssl/certs":   fs.ModeDir | 0o755,
		"etc/ssl/certs/a": 0o644,
		"etc/empty":       0o755,
		"home":            fs.ModeDir | 0o711,
	} {
		if st, err := os.Lstat(filepath.Join(p, name)); err != nil || st.Mode() != want {
			t.Errorf("%s: %v %v, want %v", name, st.Mode(), err, want)
		}
	}
	if got, err := os.ReadFile(filepath.Join(p, "etc/ssl/certs/a")); err != nil || string(got) != "a" {
		t.Errorf("content %q %v", got, err)
	}
	if got, err := os.Readlink(filepath.Join(p, "etc/alternatives/cc")); err != nil || got != "/usr/bin/gcc" {
		t.Errorf("link %q %v", got, err)
	}
}

// TestWriteFollowsNothing checks that nothing is written outside the target directory, whatever exists in it.
func TestWriteFollowsNothing(t *testing.T) {
	for _, tc := range []struct {
		name  string
		plant func(target, outside string) error
		entry Entry
		want  error
	}{
		{"link as parent", func(p, out string) error { return os.Symlink(out, p+"/etc") }, Entry{Path: "/etc/x", Mode: 0o644}, unix.ENOTDIR},
		{"link as grandparent", func(p, out string) error { return os.Symlink(out, p+"/etc") }, Entry{Path: "/etc/a/x", Mode: 0o644}, unix.ENOTDIR},
		{"link as directory", func(p, out string) error { return os.Symlink(out, p+"/etc") }, Entry{Path: "/etc", Mode: fs.ModeDir | 0o755}, unix.ENOTDIR},
		{"link as file", func(p, out string) error { return os.Symlink(out+"/x", p+"/f") }, Entry{Path: "/f", Mode: 0o644}, unix.EEXIST},
		{"link as link", func(p, out string) error { return os.Symlink(out, p+"/l") }, Entry{Path: "/l", Mode: fs.ModeSymlink, Link: "x"}, unix.EEXIST},
		{"file as file", func(p, _ string) error { return os.WriteFile(p+"/f", nil, 0o644) }, Entry{Path: "/f", Mode: 0o644, Data: []byte("x")}, unix.EEXIST},
		{"file as parent", func(p, _ string) error { return os.WriteFile(p+"/f", nil, 0o644) }, Entry{Path: "/f/x", Mode: 0o644}, unix.ENOTDIR},
		{"FIFO as file", func(p, _ string) error { return unix.Mkfifo(p+"/f", 0o644) }, Entry{Path: "/f", Mode: 0o644}, unix.EEXIST},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, fd := openTarget(t)
			outside := t.TempDir()
			if err := tc.plant(p, outside); err != nil {
				t.Fatal(err)
			}
			err := Tree{Entries: []Entry{tc.entry}}.Write(fd)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.entry.Path) {
				t.Errorf("%v, want %v", err, tc.want)
			}
			if left, _ := os.ReadDir(outside); len(left) != 0 {
				t.Errorf("written outside: %v", left)
			}
		})
	}
}

// TestMalformedEntries checks that with a malformed entry no entry is created.
func TestMalformedEntries(t *testing.T) {
	for _, e := range []Entry{
		{Path: "", Mode: 0o644},
		{Path: "/", Mode: fs.ModeDir | 0o755},
		{Path: "etc", Mode: fs.ModeDir | 0o755},
		{Path: "/../x", Mode: 0o644},
		{Path: "/a/../../x", Mode: 0o644},
		{Path: "/a//b", Mode: 0o644},
		{Path: "/a/", Mode: fs.ModeDir | 0o755},
		{Path: "/a\x00b", Mode: 0o644},
		{Path: "/" + strings.Repeat("a/", 3000) + "a", Mode: 0o644},
		{Path: "/f", Mode: fs.ModeNamedPipe | 0o644},
		{Path: "/f", Mode: fs.ModeDevice | fs.ModeCharDevice | 0o644},
		{Path: "/f", Mode: fs.ModeSetuid | 0o755},
		{Path: "/f", Mode: fs.ModeSetgid | 0o755},
		{Path: "/d", Mode: fs.ModeDir | 0o755, Data: []byte{}},
		{Path: "/l", Mode: fs.ModeSymlink | 0o777},
		{Path: "/f", Mode: 0o644, Link: "x"},
	} {
		p, fd := openTarget(t)
		good := Entry{Path: "/good", Mode: 0o644}
		if err := (Tree{Entries: []Entry{good, e}}).Write(fd); !errors.Is(err, ErrEntry) {
			t.Errorf("%+v: %v", e, err)
		}
		if made, _ := os.ReadDir(p); len(made) != 0 {
			t.Errorf("%+v: created %v", e, made)
		}
	}
}

func TestWriteTwice(t *testing.T) {
	_, fd := openTarget(t)
	tree := Tree{Entries: []Entry{{Path: "/a/f", Mode: 0o644}}}
	if err := tree.Write(fd); err != nil {
		t.Fatal(err)
	}
	if err := tree.Write(fd); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second Write: %v", err)
	}
}

// TestWriteLeaksNothing checks that Write closes its descriptors, on success and on errors.
func TestWriteLeaksNothing(t *testing.T) {
	open := func() int {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(fds)
	}
	_, fd := openTarget(t)
	host := fakeHost(t, "etc/ssl/certs/a = a", "etc/ssl/certs/b/c/d = d")
	before := open()
	for range 3 { // the second and third fail
		_ = must(t, Options{Host: host}).Write(fd)
	}
	if after := open(); after != before {
		t.Errorf("%d descriptors, want %d as before", after, before)
	}
}
