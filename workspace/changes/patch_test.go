package changes

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// patch returns the patch of the changes at paths (none: all).
func (w *world) patch(paths ...string) (string, *PatchSum) {
	w.t.Helper()
	var b bytes.Buffer
	sum, err := Patch(w.t.Context(), w, w.layer, &b, paths)
	check(w.t, err)
	return b.String(), sum
}

// by applies a patch with a command to a copy of the repository, and returns the copy.
func (w *world) by(patch string, command ...string) string {
	w.t.Helper()
	sandboxtest.Require(w.t, sandboxtest.Program(command[0]))
	dir := filepath.Join(w.t.TempDir(), "copy")
	check(w.t, exec.Command("cp", "-a", w.repo, dir).Run())
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(patch)
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "GIT_CONFIG_GLOBAL=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("%s: %v\n%s\n%s", command, err, out, patch)
	}
	return dir
}

func numbered(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

var patches = []struct {
	name string
	old  func(t testing.TB, dir string)
	new  func(t testing.TB, dir string)
	git  bool // only git: patch(1) does not support binary files or replacing a directory by a file
}{
	{"text", func(t testing.TB, dir string) {
		write(t, dir, "a", numbered(0, 100))
		write(t, dir, "d/b", "x\n")
		write(t, dir, "gone", "1\n2\n")
	}, func(t testing.TB, dir string) {
		write(t, dir, "a", "first\n"+numbered(0, 50)+"middle\n"+numbered(52, 100)+"last\n")
		write(t, dir, "d/b", "y\n")
		write(t, dir, "d/n/c", "1\n")
		check(t, os.Remove(filepath.Join(dir, "gone")))
	}, false},
	{"one line", func(t testing.TB, dir string) { write(t, dir, "a", "x\n") }, func(t testing.TB, dir string) { write(t, dir, "a", "") }, false},
	{"no newline", func(t testing.TB, dir string) {
		write(t, dir, "a", "1\n2")
		write(t, dir, "b", "1\n2\n")
		write(t, dir, "c", "1")
	}, func(t testing.TB, dir string) {
		write(t, dir, "a", "1\n2\n")
		write(t, dir, "b", "1\n2")
		write(t, dir, "c", "2")
		write(t, dir, "d", "new")
	}, false},
	{"empty files", func(t testing.TB, dir string) { write(t, dir, "a", "") }, func(t testing.TB, dir string) {
		check(t, os.Remove(filepath.Join(dir, "a")))
		write(t, dir, "b", "")
	}, false},
	{"empty to full", func(t testing.TB, dir string) { write(t, dir, "a", "") }, func(t testing.TB, dir string) { write(t, dir, "a", "1\n") }, false},
	{"modes", func(t testing.TB, dir string) {
		write(t, dir, "a", "a\n")
		write(t, dir, "b", "b\n")
		check(t, os.Chmod(filepath.Join(dir, "b"), 0o755))
	}, func(t testing.TB, dir string) {
		write(t, dir, "b", "B\n")
		write(t, dir, "c", "c\n")
		check(t, os.Chmod(filepath.Join(dir, "a"), 0o755), os.Chmod(filepath.Join(dir, "b"), 0o644), os.Chmod(filepath.Join(dir, "c"), 0o755))
	}, false},
	{"links", func(t testing.TB, dir string) {
		check(t, os.Symlink("a", filepath.Join(dir, "l")), os.Symlink("a", filepath.Join(dir, "gone")))
		write(t, dir, "f", "f\n")
		check(t, os.Symlink("a", filepath.Join(dir, "g")))
	}, func(t testing.TB, dir string) {
		for _, n := range []string{"l", "gone", "f", "g"} {
			check(t, os.Remove(filepath.Join(dir, n)))
		}
		check(t, os.Symlink("/b", filepath.Join(dir, "l")), os.Symlink("n\nl", filepath.Join(dir, "new")), os.Symlink("x", filepath.Join(dir, "f")))
		write(t, dir, "g", "g\n")
	}, false},
	{"types", func(t testing.TB, dir string) {
		write(t, dir, "file", "f\n")
		write(t, dir, "dir/a", "a\n")
		write(t, dir, "dir/b/c", "c\n")
	}, func(t testing.TB, dir string) {
		check(t, os.Remove(filepath.Join(dir, "file")), os.RemoveAll(filepath.Join(dir, "dir")))
		write(t, dir, "file/x", "x\n")
		write(t, dir, "dir", "d\n")
	}, true},
	{"odd names", func(t testing.TB, dir string) {
		for _, n := range oddNames {
			write(t, dir, "old/"+n, "x\n")
		}
	}, func(t testing.TB, dir string) {
		for _, n := range oddNames {
			write(t, dir, "old/"+n, "y\n")
			write(t, dir, "new/"+n, "x\n")
			write(t, dir, "empty/"+n, "")
		}
	}, false},
	{"odd lines", func(t testing.TB, dir string) { write(t, dir, "a", "\r\n--- a\n+++ b\n@@ -1 +1 @@\n\xff\n") }, func(t testing.TB, dir string) {
		write(t, dir, "a", "\r\n-- a\n++ b\n@@ -1 +1 @@\n\xfe\n\x0c\nGIT binary patch\ndiff --git a/a b/a\n")
	}, false},
	{"binary", func(t testing.TB, dir string) {
		write(t, dir, "a", "\x00old")
		write(t, dir, "text", "text\n")
		write(t, dir, "gone", "\x00gone")
		write(t, dir, "late", strings.Repeat("x\n", 5000)+"\x00")
	}, func(t testing.TB, dir string) {
		write(t, dir, "a", random(1))
		write(t, dir, "text", "\x00")
		write(t, dir, "new", random(5000))
		write(t, dir, "late", strings.Repeat("x\n", 5000)+"\x00y")
		write(t, dir, "long", random(52)+random(26))
		check(t, os.Remove(filepath.Join(dir, "gone")))
	}, true},
}

func random(n int) string {
	r := rand.New(rand.NewPCG(uint64(n), 0))
	b := []byte{0}
	for range n {
		b = append(b, byte(r.Uint32()))
	}
	return string(b)
}

var oddNames = []string{
	"new\nline", "q\"uote", "tab\t", " ", "a b ", "back\\slash", "\xff\xfe", "é", "\x1b[31m", "-rf", "...", "$(id)", "a\rb", "\x7f", "b/x/b", "a => b", "{x}",
}

func TestPatch(t *testing.T) {
	for _, tt := range patches {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(dir string) { tt.old(t, dir) })
			tt.new(t, w.merged)
			patch, sum := w.patch()
			if !sum.Whole() || sum.Files == 0 {
				t.Errorf("%+v", sum)
			}
			want := tree(t, w.merged)
			same(t, tree(t, w.by(patch, "git", "apply")), want)
			if !tt.git {
				same(t, tree(t, w.by(patch, "patch", "-p1", "-s")), want)
			}
		})
	}
}

// TestLeftOut checks changes that no patch can express, or that are too large.
func TestLeftOut(t *testing.T) {
	w := newWorld(t, func(dir string) {
		write(t, dir, "a", "a\n")
		write(t, dir, "m", "m\n")
		write(t, dir, "x/.git/config", "c\n")
		check(t, os.Mkdir(filepath.Join(dir, "dir"), 0o755))
	})
	m := w.merged
	write(t, m, "a", "A\n")
	write(t, m, "x/.git/config", "C\n")
	write(t, m, "x/.GIT/hooks/h", "h\n")
	write(t, m, "large", strings.Repeat("x\n", 3<<20))
	check(t, os.MkdirAll(filepath.Join(m, "new/empty"), 0o755), os.Mkdir(filepath.Join(m, "z"), 0o755))
	check(t, os.Chmod(filepath.Join(m, "m"), 0o600), os.Chmod(filepath.Join(m, "dir"), 0o700))
	check(t, os.Symlink("x", filepath.Join(m, "x/.git/link")), exec.Command("mkfifo", filepath.Join(m, "fifo")).Run())
	patch, sum := w.patch()
	if sum.Files != 1 || sum.Whole() || strings.Count(patch, "diff --git") != 1 {
		t.Errorf("%+v\n%s", sum, patch)
	}
	var left []string
	for _, l := range sum.Left {
		left = append(left, l.Path+": "+l.Reason)
	}
	want := []string{
		"dir: a patch cannot change the permissions of a directory", "fifo: it is a FIFO, a socket or a device", "large: it is too large",
		"m: a patch can change only the execute permission", "new/empty: it is an empty directory",
		"z: it is an empty directory",
	}
	if !slices.Equal(left, want) || sum.LeftCount != int64(len(want)) || sum.OfGit != 5 {
		t.Errorf("%q, want %q; %d", left, want, sum.OfGit)
	}
	patch, sum = w.patch("a", "new")
	if sum.Files != 1 || sum.LeftCount != 1 || !strings.Contains(patch, "+A\n") {
		t.Errorf("%+v\n%s", sum, patch)
	}
}

// TestPatchPermissions checks that permissions which a patch cannot express are reported, also of files whose content is
// in the patch.
func TestPatchPermissions(t *testing.T) {
	w := newWorld(t, func(dir string) {
		for _, name := range []string{"public", "secret", "same", "script", "link"} {
			write(t, dir, name, "old\n")
		}
		check(t, os.Chmod(filepath.Join(dir, "secret"), 0o600))
	})
	m := w.merged
	for _, name := range []string{"public", "secret", "same", "script", "added", "dir/file", "run"} {
		write(t, m, name, "new\n")
	}
	check(t, os.Remove(filepath.Join(m, "link")), os.Symlink("same", filepath.Join(m, "link")))
	for name, mode := range map[string]os.FileMode{
		"public": 0o666, "secret": 0o644, "script": 0o755, "added": 0o666, "dir": 0o777, "run": 0o755,
	} {
		check(t, os.Chmod(filepath.Join(m, name), mode))
	}
	_, sum := w.patch()
	var left []string
	for _, l := range sum.Left {
		left = append(left, l.Path+": "+l.Reason)
	}
	want := []string{
		"added: its content is, but not its permissions (0666)",
		"dir: its content is, but not its permissions (0777)",
		"public: its content is, but not its permissions (0666, were 0644)",
		"secret: its content is, but not its permissions (0644, were 0600)",
	}
	if !slices.Equal(left, want) || sum.Whole() || sum.Files != 8 {
		t.Errorf("%q, want %q; %+v", left, want, sum)
	}
}

// TestPatchRandom checks patches of random edits with git and patch(1).
func TestPatchRandom(t *testing.T) {
	for seed := range uint64(sandboxtest.Scale(30)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			text := func(n int) string {
				var b strings.Builder
				for range n {
					fmt.Fprintf(&b, "%d\n", r.IntN(1+n/2))
				}
				s := b.String()
				return s[:len(s)-min(len(s), r.IntN(2))]
			}
			edit := func(s string) string {
				l := lines([]byte(s))
				for range 1 + r.IntN(8) {
					at := r.IntN(len(l) + 1)
					end := at + r.IntN(min(len(l)-at, 80)+1)
					l = slices.Replace(l, at, end, lines([]byte(text(r.IntN(120))))...)
				}
				return strings.Join(l, "")
			}
			names := []string{"a", "b", "c", "d/e", "d/f"}
			w := newWorld(t, func(dir string) {
				for _, n := range names {
					write(t, dir, n, text(r.IntN(400)))
				}
			})
			for _, n := range names {
				old, err := os.ReadFile(filepath.Join(w.merged, n))
				check(t, err)
				write(t, w.merged, n, edit(string(old)))
			}
			patch, _ := w.patch()
			want := tree(t, w.merged)
			same(t, tree(t, w.by(patch, "git", "apply")), want)
			same(t, tree(t, w.by(patch, "patch", "-p1", "-s")), want)
		})
	}
}
