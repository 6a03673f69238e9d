package directory

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// tree creates directories a/b/c, a file, and links: above to a, and a/b/link to c.
func tree(t *testing.T) string {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err := errors.Join(
		err, os.MkdirAll(top+"/a/b/c", 0o755), os.WriteFile(top+"/a/file", nil, 0o644),
		os.Symlink("a", top+"/above"), os.Symlink("c", top+"/a/b/link"), os.Symlink("nothing", top+"/a/dangling"),
	); err != nil {
		t.Fatal(err)
	}
	return top
}

func TestOpen(t *testing.T) {
	top := tree(t)
	for _, tt := range []struct {
		path string
		link string // the link named in the error; "" for none
		err  error  // nil if it is opened
	}{
		{top + "/a/b/c", "", nil},
		{"/", "", nil},
		{top + "/above/b/c", top + "/above", unix.ELOOP},
		{top + "/a/b/link", top + "/a/b/link", unix.ELOOP},
		{top + "/above/b/link", top + "/above", unix.ELOOP},
		{top + "/a/dangling", top + "/a/dangling", unix.ELOOP},
		{"/proc/self/cwd", "/proc/self", unix.ELOOP},
		{top + "/a/file", "", unix.ENOTDIR},
		{top + "/a/none", "", unix.ENOENT},
		{top + "/a/", "", ErrPath},
		{top + "/a/../a", "", ErrPath},
		{"a", "", ErrPath},
		{"", "", ErrPath},
		{"/a\x00b", "", ErrPath},
	} {
		f, err := Open(tt.path)
		if err == nil {
			f.Close()
		}
		var link *LinkError
		if !errors.Is(err, tt.err) || errors.As(err, &link) != (tt.link != "") || link != nil && link.Link != tt.link {
			t.Errorf("%q: %v", tt.path, err)
		}
		if link != nil && !strings.Contains(err.Error(), `symbolic link`) {
			t.Errorf("%q: %v", tt.path, err)
		}
	}
}

func TestRootOnly(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	top := tree(t)
	for _, tt := range []struct {
		name  string
		path  string
		owner int
		mode  uint32 // of path
		of    string // the argument of RootOnly
		want  string // part of the error; "" for none
	}{
		{"root's", "/a/b", 0, 0o755, "/a/b/c", ""},
		{"closed", "/a/b", 0, 0o700, "/a/b/c", ""},
		{"somebody's above", "/a", 1001, 0o755, "/a/b/c", `/a" belongs to user 1001`},
		{"somebody's", "/a/b/c", 1001, 0o755, "/a/b/c", `/a/b/c" belongs to user 1001`},
		{"the group's to write", "/a/b", 0, 0o775, "/a/b/c", `/a/b" has mode 0775`},
		{"everybody's to write", "/a", 0, 0o777, "/a/b/c", `/a" has mode 0777`},
		{"sticky", "/a", 0, 0o1777, "/a/b/c", ""},
		{"sticky itself", "/a/b/c", 0, 0o1777, "/a/b/c", `/a/b/c" has mode 1777`},
	} {
		path := top + tt.path
		if err := errors.Join(os.Chown(path, tt.owner, tt.owner), unix.Chmod(path, tt.mode)); err != nil {
			t.Fatal(err)
		}
		dir, err := Open(top + tt.of)
		if err != nil {
			t.Fatal(err)
		}
		err = RootOnly(top+tt.of, dir)
		if (tt.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		if err := RootOnly(top+"/a/b", dir); err == nil {
			t.Errorf("%s: the descriptor is of another directory", tt.name)
		}
		dir.Close()
		if err := errors.Join(os.Chown(path, 0, 0), unix.Chmod(path, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAccountOpens: an account can open what its user can, also by its groups; afterwards the thread has root's rights.
func TestAccountOpens(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	top := tree(t)
	if err := errors.Join(
		os.Chmod(filepath.Dir(top), 0o755), os.Chmod(top, 0o755), os.Chown(top+"/a", 0, 1500), os.Chmod(top+"/a", 0o750),
	); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		account Account
		err     error
	}{
		{"root", Account{}, nil},
		{"a user", Account{UID: 1001, GID: 1001}, unix.EACCES},
		{"by its group", Account{UID: 1001, GID: 1500}, nil},
		{"by another group", Account{UID: 1001, GID: 1001, Groups: []uint32{4, 1500}}, nil},
	} {
		for _, path := range []string{top + "/a/b/c", top + "/a"} { // opening a itself needs no search permission in it
			for range 25 {
				f, err := tt.account.Open(path)
				if err == nil {
					f.Close()
				}
				if !errors.Is(err, tt.err) {
					t.Errorf("%s: %s: %v", tt.name, path, err)
				}
			}
		}
	}
	var before, inside, after thread
	sandboxtest.OnThread(func() {
		before, _ = credentials()
		a := Account{UID: 1001, GID: 1002, Groups: []uint32{7}}
		if err := a.assume(); err != nil {
			t.Error(err)
		}
		inside, _ = credentials()
		if err := before.restore(); err != nil {
			t.Error(err)
		}
		after, _ = credentials()
	})
	if inside.fsuid != 1001 || inside.fsgid != 1002 || !slices.Equal(inside.groups, []int{7}) || inside.caps[0].Effective|inside.caps[1].Effective != 0 {
		t.Errorf("inside: %+v", inside)
	}
	if after.fsuid != before.fsuid || after.fsgid != before.fsgid || !slices.Equal(after.groups, before.groups) || after.caps != before.caps {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// TestAccountOfOthers: a process that is not root cannot open with another user's rights.
func TestAccountOfOthers(t *testing.T) {
	if _, err := (Account{}).Open("/"); os.Geteuid() != 0 && !errors.Is(err, unix.EPERM) {
		t.Errorf("%v", err)
	}
	f, err := (Account{UID: uint32(os.Geteuid())}).Open("/")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func TestParseAccount(t *testing.T) {
	for _, a := range []Account{{}, {UID: 1000, GID: 1001}, {UID: 1, GID: 2, Groups: []uint32{3}}, {UID: 1, GID: 2, Groups: []uint32{3, 4_294_967_294}}} {
		got, err := ParseAccount(a.String())
		if err != nil || got.UID != a.UID || got.GID != a.GID || !slices.Equal(got.Groups, a.Groups) {
			t.Errorf("%s: %+v, %v", a, got, err)
		}
	}
	many := "1:2:3" + strings.Repeat(",4", MaxGroups)
	for _, s := range []string{"", "1", "1:", ":1", "x:1", "-1:1", "1:4294967295", "1:2:", "1:2:3,", "1:2:3:4", "1:2 ", many} {
		if a, err := ParseAccount(s); err == nil {
			t.Errorf("%.40q: %+v", s, a)
		}
	}
}

func TestAbsolute(t *testing.T) {
	top := tree(t)
	t.Chdir(top + "/above/b")
	for name, want := range map[string]string{
		"": top + "/a/b", ".": top + "/a/b", "link": top + "/a/b/link", "../x/": top + "/a/x", top + "/above//b/": top + "/above/b",
	} {
		if got, err := Absolute(name); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", name, got, err, want)
		}
	}
}

func TestOverlap(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{{"/a", "/a", true}, {"/a", "/a/b", true}, {"/a/b", "/a", true}, {"/", "/a", true}, {"/a", "/ab", false}, {"/a/b", "/a/c", false}} {
		if got := Overlap(tt.a, tt.b); got != tt.want {
			t.Errorf("%s, %s: %t", tt.a, tt.b, got)
		}
	}
}
