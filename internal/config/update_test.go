package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"corral/internal/test/sandboxtest"
)

// namesIn returns the names in a directory.
func namesIn(t *testing.T, dir string) string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func contentOf(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// rewriteFile has edit change the configuration file itself.
func rewriteFile(path string, o LoadOptions, edit func(old []byte) ([]byte, error)) error {
	return Update(path, o, func(files Files) (Change, error) {
		var old []byte
		if files.Main != nil {
			old = files.Main.Content
		}
		content, err := edit(old)
		return Change{Name: path, Content: content}, err
	})
}

// apply makes an edit.
func apply(path string, edit Edit) error {
	return Update(path, LoadOptions{}, func(files Files) (Change, error) {
		change, _, _, err := edit.Apply(path, files)
		return change, err
	})
}

func TestUpdate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.yaml")
	to := func(s string) func([]byte) ([]byte, error) {
		return func([]byte) ([]byte, error) { return []byte(s), nil }
	}
	mode := func() os.FileMode {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode()
	}
	if err := rewriteFile(path, LoadOptions{}, func(old []byte) ([]byte, error) {
		if old != nil {
			t.Errorf("there was %q", old)
		}
		return []byte("one"), nil
	}); err != nil || contentOf(t, path) != "one" || mode() != 0o600 {
		t.Errorf("created: %v, %q, %v", err, contentOf(t, path), mode())
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := rewriteFile(path, LoadOptions{}, to("two")); err != nil || contentOf(t, path) != "two" || mode() != 0o640 {
		t.Errorf("changed: %v, %q, %v", err, contentOf(t, path), mode())
	}
	broken := errors.New("broken")
	for name, edit := range map[string]func([]byte) ([]byte, error){
		"failed":  func([]byte) ([]byte, error) { return nil, broken },
		"large":   to(strings.Repeat("x", MaxSize+1)),
		"crossed": func([]byte) ([]byte, error) { return []byte("three"), os.WriteFile(path, []byte("theirs"), 0o640) },
		"removed": func([]byte) ([]byte, error) { return []byte("four"), os.Remove(path) },
	} {
		if err := os.WriteFile(path, []byte("two"), 0o640); err != nil {
			t.Fatal(err)
		}
		err := rewriteFile(path, LoadOptions{}, edit)
		if err == nil || name == "failed" && !errors.Is(err, broken) {
			t.Errorf("%s: %v", name, err)
		}
		content, _ := os.ReadFile(path)
		want := map[string]string{"failed": "two", "large": "two", "crossed": "theirs", "removed": ""}[name]
		if got := namesIn(t, dir); string(content) != want || got != map[bool]string{true: "c.yaml"}[want != ""] {
			t.Errorf("%s: it is %q, beside %q", name, content, got)
		}
	}
}

// TestUpdateAtomic: a reader never sees half a change, and no change of several at once is lost.
func TestUpdateAtomic(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(path, []byte("version: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var writers, reader sync.WaitGroup
	end := make(chan struct{})
	reader.Go(func() {
		for {
			if _, err := Load(path, LoadOptions{}); err != nil {
				t.Error(err)
				return
			}
			select {
			case <-end:
				return
			default:
			}
		}
	})
	const n = 8
	for i := range n {
		writers.Go(func() {
			id := fmt.Sprint("r", i)
			edit := Edit{AddRepo: &Repo{ID: id, Path: "/srv/" + id}}
			if err := apply(path, edit); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	close(end)
	reader.Wait()
	if c, err := Load(path, LoadOptions{}); err != nil || len(c.Repos) != n {
		t.Errorf("%d of %d, %v", len(c.Repos), n, err)
	}
}

func TestUpdateLinks(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(real, []byte("one"), 0o600), os.Symlink("real", link)); err != nil {
		t.Fatal(err)
	}
	two := func([]byte) ([]byte, error) { return []byte("two"), nil }
	if err := rewriteFile(link, LoadOptions{}, two); err == nil || contentOf(t, real) != "one" {
		t.Errorf("a forbidden link: %v", err)
	}
	if err := rewriteFile(link, LoadOptions{Links: true}, two); err != nil || contentOf(t, real) != "two" {
		t.Errorf("%v, %q", err, contentOf(t, real))
	}
	if to, err := os.Readlink(link); err != nil || to != "real" {
		t.Errorf("the link was replaced: %q, %v", to, err)
	}
	// A missing directory is created only if it is the user's.
	deep := filepath.Join(dir, "a", "b", "c.yaml")
	if err := rewriteFile(deep, LoadOptions{}, two); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing directory: %v", err)
	}
	if err := rewriteFile(deep, LoadOptions{User: true, Own: true, Links: true}, two); err != nil || contentOf(t, deep) != "two" {
		t.Errorf("%v", err)
	}
}

// TestUpdateTrusted: root changes no file that another user could have written, and keeps its owner.
func TestUpdateTrusted(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	dir := t.TempDir()
	path := filepath.Join(dir, "c.yaml")
	one := func([]byte) ([]byte, error) { return []byte("one"), nil }
	two := func([]byte) ([]byte, error) { return []byte("two"), nil }
	if err := errors.Join(os.Chmod(dir, 0o755), rewriteFile(path, LoadOptions{Trusted: true}, one)); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := errors.Join(os.Chown(path, 0, 4242), rewriteFile(path, LoadOptions{Trusted: true}, two)); err != nil {
		t.Fatal(err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil || st.Gid != 4242 || st.Uid != 0 {
		t.Errorf("belongs to %d:%d, %v", st.Uid, st.Gid, err)
	}
	for name, spoil := range map[string]func() error{
		"another's":               func() error { return os.Chown(path, 1000, -1) },
		"in another's directory":  func() error { return os.Chown(dir, 1000, -1) },
		"everybody's":             func() error { return os.Chmod(path, 0o646) },
		"in everybody's place":    func() error { return os.Chmod(dir, 0o777) },
		"new, in another's place": func() error { return errors.Join(os.Remove(path), os.Chown(dir, 1000, -1)) },
	} {
		if err := errors.Join(os.WriteFile(path, []byte("two"), 0o644), os.Chown(path, 0, 0), os.Chown(dir, 0, 0),
			os.Chmod(path, 0o644), os.Chmod(dir, 0o755), spoil()); err != nil {
			t.Fatal(err)
		}
		if err := rewriteFile(path, LoadOptions{Trusted: true}, one); err == nil {
			t.Errorf("%s: changed", name)
		}
		if b, err := os.ReadFile(path); err == nil && string(b) != "two" {
			t.Errorf("%s: it is %q", name, b)
		}
	}
}

// TestUpdateLocked: Update waits for another process that changes files of the directory.
func TestUpdateLocked(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c")
	locked, err := lockDirectory(path, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		done <- rewriteFile(path, LoadOptions{}, func([]byte) ([]byte, error) { return []byte("x"), nil })
	}()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Errorf("the directory is not locked: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Update did not wait: %v", err)
	}
	locked.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestUpdateMoved: Update writes to the directory that it locked, whatever its path means by then.
func TestUpdateMoved(t *testing.T) {
	top := t.TempDir()
	dir, moved, trap := filepath.Join(top, "dir"), filepath.Join(top, "moved"), filepath.Join(top, "trap")
	for _, d := range []string{dir, trap} {
		if err := errors.Join(os.Mkdir(d, 0o755), os.WriteFile(filepath.Join(d, "c"), []byte("old"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	err := rewriteFile(filepath.Join(dir, "c"), LoadOptions{}, func([]byte) ([]byte, error) {
		return []byte("new"), errors.Join(os.Rename(dir, moved), os.Symlink(trap, dir))
	})
	if got := contentOf(t, filepath.Join(moved, "c")); err != nil || got != "new" {
		t.Errorf("%q, %v", got, err)
	}
	if got, all := contentOf(t, filepath.Join(trap, "c")), namesIn(t, trap); got != "old" || all != "c" {
		t.Errorf("in the other directory: %q of %s", got, all)
	}
}

// TestUpdateOwner: a file that root changes keeps its owner and its group.
func TestUpdateOwner(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := errors.Join(os.WriteFile(path, []byte("one"), 0o640), os.Chmod(path, 0o640), os.Chown(path, 1234, 1235)); err != nil {
		t.Fatal(err)
	}
	if err := rewriteFile(path, LoadOptions{}, func([]byte) ([]byte, error) { return []byte("two"), nil }); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if st := info.Sys().(*syscall.Stat_t); st.Uid != 1234 || st.Gid != 1235 || info.Mode().Perm() != 0o640 || contentOf(t, path) != "two" {
		t.Errorf("%d:%d, %v, %q", st.Uid, st.Gid, info.Mode(), contentOf(t, path))
	}
}

// TestUpdateNoDirectory: nothing is created where the directory of a named file is missing, or is a link.
func TestUpdateNoDirectory(t *testing.T) {
	dir := t.TempDir()
	write := func([]byte) ([]byte, error) { return []byte("x"), nil }
	if err := rewriteFile(filepath.Join(dir, "no", "c.yaml"), LoadOptions{}, write); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := rewriteFile(filepath.Join(dir, "file", "corral", "c.yaml"), LoadOptions{User: true}, write); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a user's directory below a file: %v", err)
	}
	if err := os.Symlink(t.TempDir(), filepath.Join(dir, reposDir)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "c.yaml")
	err := Update(path, LoadOptions{}, func(Files) (Change, error) {
		return Change{Name: filepath.Join(dir, reposDir, "a.yaml"), Content: []byte("path: /a\n")}, nil
	})
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, reposDir)+" is not a directory") {
		t.Errorf("a link to a directory of entry files: %v", err)
	}
}
