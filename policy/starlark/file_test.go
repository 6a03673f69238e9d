package starlark

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

const allowAll = "def decide(request): return allow()\n"

// write writes a file of rules in a temporary directory, and returns its path.
func write(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "rules.star")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(path, []byte(source), 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

// wants checks that the file denies a request with a reason that contains want, or allows it if want is "".
func wants(t *testing.T, f *File, what, want string) {
	t.Helper()
	got := f.Decide(t.Context(), query())
	if got.Denied != (want != "") || !strings.Contains(got.Reason, want) {
		t.Errorf("%s: %+v, want %q", what, got, want)
	}
}

func TestFileIsReadAgain(t *testing.T) {
	path := write(t, allowAll)
	f := Open(path)
	wants(t, f, "at first", "")
	step := func(what, source, want string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		wants(t, f, what, want)
	}
	// All changes are in place, of the same length, and within one tick of the file system's clock.
	step("one", "def decide(request): return deny('one')\n", "one")
	step("two", "def decide(request): return deny('two')\n", "two")
	step("broken", "def decide(request): return deny('two'\n", "The operator's rules failed: rules.star:2:1:")
	step("mended", allowAll, "")
	if err := os.Rename(write(t, "def decide(request): return deny('moved')\n"), path); err != nil {
		t.Fatal(err)
	}
	wants(t, f, "another file in its place", "moved")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	wants(t, f, "none", "The operator's rules failed: rules.star: no such file or directory")
	step("again", allowAll, "")
	step("nothing in it", "", "missing function decide")
	step("longer than may be", strings.Repeat("#\n", MaxSource), "at most 65536 are accepted")
}

func TestUntrusted(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(path string) error
		want string
	}{
		{"others may write", func(path string) error { return os.Chmod(path, 0o602) }, "it is writable by others (mode 0602)"},
		{"the group may write", func(path string) error { return os.Chmod(path, 0o620) }, "it is writable by others"},
		{"the directory", func(path string) error { return os.Chmod(filepath.Dir(path), 0o777) }, "its directory is writable by others (mode 0777)"},
		{"link", func(path string) error {
			return errors.Join(os.Rename(path, path+"2"), os.Symlink(path+"2", path))
		}, "it is a symbolic link"},
		{"directory", func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }, "it is not a regular file"},
		{"FIFO", func(path string) error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)) }, "it is not a regular file"},
		{"gone with its directory", func(path string) error { return os.RemoveAll(filepath.Dir(path)) }, "no such file"},
	} {
		path := write(t, allowAll)
		f := Open(path)
		wants(t, f, tt.name+", before", "")
		if err := tt.do(path); err != nil {
			t.Fatal(err)
		}
		wants(t, f, tt.name, tt.want)
		if err := f.Check(); err == nil || strings.Contains(err.Error(), filepath.Dir(path)) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestForeignOwner(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	path := write(t, allowAll)
	if err := os.Chown(path, 54321, 54321); err != nil {
		t.Fatal(err)
	}
	wants(t, Open(path), "the file", "it belongs to user 54321")
	path = write(t, allowAll)
	if err := os.Chown(filepath.Dir(path), 54321, 54321); err != nil {
		t.Fatal(err)
	}
	wants(t, Open(path), "its directory", "its directory belongs to user 54321")
}

// TestInRepository checks that rules in a repository are refused, since jobs could write to them.
func TestInRepository(t *testing.T) {
	path := write(t, allowAll)
	dir := filepath.Dir(path)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	const want = "it is in a repository"
	wants(t, Open(path, "/srv/x", dir), "in it", want)
	wants(t, Open(path, filepath.Dir(dir)), "below", want)
	wants(t, Open(path, link), "the repository by another name", want)
	wants(t, Open(filepath.Join(link, "rules.star"), dir), "the file by another name", want)
	wants(t, Open(path, "/"), "all of the host", want)
	wants(t, Open(path, dir+"-other", dir[:len(dir)-1]), "a name that begins alike", "")
}

func TestFileInParallel(t *testing.T) {
	path := write(t, allowAll)
	f := Open(path)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if v := f.Decide(t.Context(), query()); v.Denied && v.Reason != "x" {
					t.Errorf("%+v", v)
				}
			}
		})
	}
	for range 20 { // by renaming, so that no partial file is read
		next := path + ".new"
		if err := errors.Join(os.WriteFile(next, []byte("def decide(request): return deny('x')\n"), 0o600), os.Rename(next, path)); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	wants(t, f, "in the end", "x")
}
