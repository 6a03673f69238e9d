package edit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// TestPaths checks that an edit changes only regular files in the repository, outside of git directories.
func TestPaths(t *testing.T) {
	base := t.TempDir()
	root := filepath.Join(base, "repo")
	write(t, filepath.Join(base, "secret"), "old\n")
	write(t, filepath.Join(root, "sub/f"), "old\n")
	write(t, filepath.Join(root, ".git/config"), "old\n")
	for name, target := range map[string]string{
		"in": "sub/f", "in-absolute": root + "/sub/f", "in-up": "sub/../sub/f", "dir-in": "sub", "git": ".git/config", "git-dir": ".git",
		"out": "../secret", "out-absolute": base + "/secret", "out-dir": "..", "out-proc": "/proc/self/cwd", "loop": "loop", "sub/up": "../..",
		"dangling": "sub/new", "dangling-out": "../new", "sub/back": "../sub/f",
	} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(unix.Mkfifo(filepath.Join(root, "fifo"), 0o600), os.Mkdir(filepath.Join(root, "dir"), 0o700),
		unix.Mknod(filepath.Join(root, "socket"), unix.S_IFSOCK|0o600, 0)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"sub/f": "", "./sub//f": "", "sub/../sub/f": "", root + "/sub/f": "", "in": "", "in-absolute": "", "in-up": "", "dir-in/f": "", "sub/back": "",
		"../secret": "leads out", base + "/secret": "leads out", "sub/../../secret": "leads out", "/etc/passwd": "leads out",
		root + "x/f": "leads out", "out": "leads out", "out-absolute": "leads out", "out-dir/secret": "leads out", "sub/up/secret": "leads out",
		"out-proc/sub/f": "leads out", "loop": "too many symbolic links",
		".git/config": "git directory", "git": "git directory", "git-dir/config": "git directory", ".GIT/config": "git directory",
		"sub/../.git/config": "git directory", "fifo": "not a regular file", "socket": "not a regular file", "dir": "is a directory", "dir/": "is a directory",
		".": "is a directory", "sub/f/x": "is not a directory", "no/f": "there is no directory no", "no": "does not exist",
	} {
		write(t, filepath.Join(root, "sub/f"), "old\n")
		_, err := run(t, root, Request{Path: name, Old: ptr("old"), New: ptr("new")})
		now := content(t, filepath.Join(root, "sub/f"))
		if want == "" && (err != nil || now != "new\n") {
			t.Errorf("%s: %v, %q", name, err, now)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want) || now != "old\n") {
			t.Errorf("%s: %v, want %q; file %q", name, err, want, now)
		}
	}
	if got := content(t, filepath.Join(base, "secret")) + content(t, filepath.Join(root, ".git/config")); got != "old\nold\n" {
		t.Errorf("outside: %q", got)
	}
	for name, ok := range map[string]bool{"dangling": true, "dangling-out": false, "a/b/c": true, "../x": false, "out-dir/x": false, ".git/hooks/x": false} {
		_, err := run(t, root, Request{Path: name, Old: ptr(""), New: ptr("x")})
		if (err == nil) != ok {
			t.Errorf("create %s: %v", name, err)
		}
	}
	alone(t, base, "repo", "secret")
}

// TestLongWay: a path has at most maxDepth directories at a time, and nothing is left of what was made on the way.
func TestLongWay(t *testing.T) {
	root := t.TempDir()
	deep := strings.Repeat("d/", maxDepth-2)
	if err := errors.Join(os.MkdirAll(filepath.Join(root, deep, "x"), 0o700), os.Mkdir(filepath.Join(root, "e"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		deep + "x/f": "", deep + "x/y/f": "directories deep", "e/" + strings.Repeat("n/", 2*maxDepth) + "f": "directories deep",
		strings.Repeat("e/../", 10*maxDepth) + "f": "",
	} {
		_, err := run(t, root, Request{Path: name, Old: ptr(""), New: ptr("x")})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.40s: %v, want %q", name, err, want)
		}
	}
	alone(t, filepath.Join(root, "e"))
}

// TestKeeps checks what an edited file keeps beside its content.
func TestKeeps(t *testing.T) {
	root := t.TempDir()
	name := filepath.Join(root, "f")
	write(t, name, "old\n")
	if err := errors.Join(os.Chmod(name, 0o751), os.Link(name, filepath.Join(root, "g"))); err != nil { //nolint:gosec // the mode is what is tested
		t.Fatal(err)
	}
	attributes := unix.Setxattr(name, "user.note", []byte("value"), 0) == nil
	if os.Getuid() == 0 {
		if err := os.Chown(name, 12, 34); err != nil {
			t.Fatal(err)
		}
	}
	var before, after unix.Stat_t
	if err := unix.Stat(name, &before); err != nil {
		t.Fatal(err)
	}
	got, err := run(t, root, Request{Path: "f", Old: ptr("old"), New: ptr("new")})
	if err != nil || !strings.Contains(got, "hard links") {
		t.Errorf("%v, %q", err, got)
	}
	if err := unix.Stat(name, &after); err != nil {
		t.Fatal(err)
	}
	if after.Mode != before.Mode || after.Uid != before.Uid || after.Gid != before.Gid {
		t.Errorf("%o %d %d, was %o %d %d", after.Mode, after.Uid, after.Gid, before.Mode, before.Uid, before.Gid)
	}
	value := make([]byte, 10)
	if n, err := unix.Getxattr(name, "user.note", value); attributes && (err != nil || string(value[:n]) != "value") {
		t.Errorf("attribute: %q, %v", value, err)
	}
	if got := content(t, filepath.Join(root, "g")); got != "old\n" {
		t.Errorf("the other name: %q", got)
	}
}

// TestLarge checks that a file above the maximum is refused without being read, and one at the maximum is edited.
func TestLarge(t *testing.T) {
	root := t.TempDir()
	for name, size := range map[string]int64{"huge": 1 << 30, "above": MaxFile + 1} {
		write(t, filepath.Join(root, name), "old")
		if err := os.Truncate(filepath.Join(root, name), size); err != nil {
			t.Fatal(err)
		}
		_, err := run(t, root, Request{Path: name, Old: ptr("old"), New: ptr("new")})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("has %d bytes", size)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	write(t, filepath.Join(root, "full"), strings.Repeat("x\n", MaxFile/2-2)+"old\n")
	if _, err := run(t, root, Request{Path: "full", Old: ptr("old"), New: ptr("new")}); err != nil {
		t.Error(err)
	}
	if _, err := run(t, root, Request{Path: "full", Old: ptr("new"), New: ptr("longer")}); err == nil || !strings.Contains(err.Error(), "would have") {
		t.Errorf("beyond the maximum: %v", err)
	}
}

// TestParallel checks that edits of one file at the same time all take effect.
func TestParallel(t *testing.T) {
	root := t.TempDir()
	const n = 8
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "line %d is old\n", i)
	}
	write(t, filepath.Join(root, "f"), text.String())
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			r := Request{Path: "f", Old: ptr(fmt.Sprintf("line %d is old", i)), New: ptr(fmt.Sprintf("line %d is new", i))}
			if _, err := r.do(root); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, want := content(t, filepath.Join(root, "f")), strings.ReplaceAll(text.String(), "old", "new"); got != want {
		t.Errorf("%q", got)
	}
	alone(t, root, "f")
}

// TestChangedMeanwhile checks that what another program writes during an edit is not lost, however it writes: the edit is
// made on the new content, or refused.
func TestChangedMeanwhile(t *testing.T) {
	for name, other := range map[string]func(t *testing.T, name string){
		"in place": func(t *testing.T, name string) { write(t, name, "old, theirs\n") },
		"by renaming": func(t *testing.T, name string) {
			write(t, name+".their", "old, theirs\n")
			if err := os.Rename(name+".their", name); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			write(t, filepath.Join(root, "f"), "old, mine\n")
			at, err := find(root, "f", false)
			if err != nil {
				t.Fatal(err)
			}
			defer at.close()
			times := 0
			_, err = at.edit(func(f *file) ([]change, error) {
				if times++; times == 1 {
					other(t, filepath.Join(root, "f"))
				}
				return replace(f, "old", "new", false)
			})
			if got := content(t, filepath.Join(root, "f")); err != nil || times != 2 || got != "new, theirs\n" {
				t.Errorf("%v, %d times, %q", err, times, got)
			}
			alone(t, root, "f")
			write(t, filepath.Join(root, "f"), "old, mine\n")
			_, err = at.edit(func(f *file) ([]change, error) {
				times++
				other(t, filepath.Join(root, "f"))
				write(t, filepath.Join(root, "f"), fmt.Sprintf("old, %d\n", times))
				return replace(f, "old", "new", false)
			})
			if got, want := content(t, filepath.Join(root, "f")), fmt.Sprintf("old, %d\n", times); !errors.Is(err, errChanged) || got != want {
				t.Errorf("%v, %q, want %q", err, got, want)
			}
			alone(t, root, "f")
		})
	}
}

// TestCreatedMeanwhile checks that creating a file never replaces one.
func TestCreatedMeanwhile(t *testing.T) {
	root := t.TempDir()
	at, err := find(root, "f", true)
	if err != nil {
		t.Fatal(err)
	}
	defer at.close()
	_, err = at.edit(func(f *file) ([]change, error) {
		write(t, filepath.Join(root, "f"), "theirs\n")
		return create(f, "mine\n")
	})
	if got := content(t, filepath.Join(root, "f")); err == nil || got != "theirs\n" {
		t.Errorf("%v, %q", err, got)
	}
	alone(t, root, "f")
}

// TestLeftOver checks that a killed edit's temporary file is removed by the next one, and that it may be anything.
func TestLeftOver(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "f"), "old\n")
	for _, make := range []func(name string) error{
		func(name string) error { return os.WriteFile(name, []byte("half"), 0o600) },
		func(name string) error { return os.Symlink("/etc/passwd", name) },
		func(name string) error { return unix.Mkfifo(name, 0o600) },
	} {
		write(t, filepath.Join(root, "f"), "old\n")
		if err := make(filepath.Join(root, temporary)); err != nil {
			t.Fatal(err)
		}
		if _, err := run(t, root, Request{Path: "f", Old: ptr("old"), New: ptr("new")}); err != nil {
			t.Error(err)
		}
		alone(t, root, "f")
	}
}

// TestMovedDirectory checks that an edit under way stays in the directory that it found, when that is moved and another one
// takes its name.
func TestMovedDirectory(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "a/f"), "old\n")
	write(t, filepath.Join(root, "b/f"), "old\n")
	at, err := find(root, "a/f", false)
	if err != nil {
		t.Fatal(err)
	}
	defer at.close()
	_, err = at.edit(func(f *file) ([]change, error) {
		if err := errors.Join(os.Rename(filepath.Join(root, "a"), filepath.Join(root, "c")), os.Symlink("b", filepath.Join(root, "a"))); err != nil {
			t.Error(err)
		}
		return replace(f, "old", "new", false)
	})
	if got := content(t, filepath.Join(root, "c/f")) + content(t, filepath.Join(root, "b/f")); err != nil || got != "new\nold\n" {
		t.Errorf("%v, %q", err, got)
	}
}

// TestLocked checks that an edit waits for another program's lock and goes on when it is released, or never is: every program that can read
// a directory can lock it.
func TestLocked(t *testing.T) {
	for _, released := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			root := t.TempDir()
			write(t, filepath.Join(root, "f"), "old\n")
			d, err := os.Open(root)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			fd := int(d.Fd())
			if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			if released {
				time.AfterFunc(lockTime/2, func() { _ = unix.Flock(fd, unix.LOCK_UN) })
			}
			_, err = (&Request{Path: "f", Old: ptr("old"), New: ptr("new")}).do(root)
			if err != nil || content(t, filepath.Join(root, "f")) != "new\n" {
				t.Error(err)
			}
			if waited := time.Since(begun); waited < lockTime/2 || waited < lockTime != released {
				t.Errorf("it waited for %v", waited)
			}
			if list, err := os.ReadDir(root); err != nil || len(list) != 1 {
				t.Errorf("left behind: %v, %v", list, err)
			}
		})
	}
}
