package layer

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/workspace/changes/stream"
)

// TestOther checks special files, which no repository contains.
func TestOther(t *testing.T) {
	w := newWorld(t, func(repo string) {
		project(t)(repo)
		check(t, unix.Mkfifo(filepath.Join(repo, "pipe"), 0o644), unix.Mkfifo(filepath.Join(repo, "pipe2"), 0o644))
	})
	m := at{t, w.merged}
	check(t, unix.Mkfifo(m.path("fifo"), 0o644), unix.Mknod(m.path("socket"), unix.S_IFSOCK|0o644, 0))
	check(t, unix.Mknod(m.path("null"), unix.S_IFCHR|0o644, int(unix.Mkdev(1, 3))))
	m.remove("b")
	check(t, unix.Mkfifo(m.path("b"), 0o644))
	m.remove("pipe")
	m.remove("pipe2")
	m.write("pipe2", "a file")
	m.write("n", "n")
	all := w.run("apply")
	want := []string{
		"added file n", "added other fifo", "added other null", "added other socket", "deleted other pipe", "replaced file pipe2 was other",
		"replaced other b was file",
	}
	if got := all.lines(); !slices.Equal(got, want) || all.sum.Skipped != 4 || all.sum.Applied != 3 || all.sum.Failed != "" {
		t.Errorf("%q %+v", got, all.sum)
	}
	if got := tree(t, w.repo); got["b"] == "" || got["n"] == "" || got["fifo"] != "" || got["pipe"] != "" {
		t.Errorf("%q", got)
	}
}

// TestMarks checks that files with overlay attributes that corral's overlays do not set are not applied.
func TestMarks(t *testing.T) {
	for _, tt := range []struct{ path, mark, value string }{
		{"b", markMetacopy, ""}, {"b", markRedirect, "/a"}, {"d", markRedirect, "e"}, {"d", markOpaque, "x"}, {"d", markOpaque, strings.Repeat("y", 300)},
	} {
		w := newWorld(t, project(t))
		at{t, w.merged}.write("b", "2\n2\n")
		at{t, w.merged}.write("d/x", "X")
		check(t, unix.Setxattr(filepath.Join(w.upper, tt.path), tt.mark, []byte(tt.value), 0))
		if all := w.run("list"); !all.sum.Incomplete {
			t.Errorf("%v: %q %+v", tt, all.lines(), all.sum)
		}
		all := w.run("apply")
		if got := conflicts(all); !slices.Equal(got, []string{tt.path + ": unknown"}) || len(all.entries) > 0 {
			t.Errorf("%v: %q %q", tt, got, all.lines())
		}
	}
}

// TestUnprivileged runs as an unprivileged user, as jobs do, and checks that unreadable files are reported.
func TestUnprivileged(t *testing.T) {
	w := newWorld(t, project(t))
	m := at{t, w.merged}
	m.write("secret", "s")
	m.chmod("secret", 0)
	m.write("closed/f", "f")
	m.chmod("closed", 0)
	m.write("b", "2\n")
	if got, want := w.unprivileged("list").lines(), []string{"added directory closed", "added file secret", "modified file b"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if all := w.unprivileged("list"); !all.sum.Incomplete {
		t.Errorf("%+v", all.sum)
	}
	before := tree(t, w.repo)
	all := w.unprivileged("apply")
	if got := conflicts(all); !slices.Equal(got, []string{"closed: no access", "secret: no access"}) {
		t.Errorf("%q", got)
	}
	same(t, tree(t, w.repo), before)
	if all := w.unprivileged("apply", "b"); all.sum.Applied != 1 || all.sum.Failed != "" || len(all.conflicts) > 0 {
		t.Errorf("%+v", all)
	}
}

// TestPermissions checks that an apply writes to read-only directories of its own user, and treats unreadable files
// as changed.
func TestPermissions(t *testing.T) {
	w := newWorld(t, func(repo string) {
		r := at{t, repo}
		project(t)(repo)
		r.write("locked/sub/f", "f")
		r.write("locked/g", "g")
		r.write("unread", "u")
		r.write("exec", "e")
		r.chmod("unread", 0)
		r.chmod("exec", 0o111)
		r.chmod("locked/sub", 0o500)
		r.chmod("locked", 0o555)
	})
	m := at{t, w.merged}
	m.write("locked/sub/n", "n")
	m.remove("locked/g")
	m.remove("unread")
	m.write("unread", "r")
	m.remove("exec")
	want := tree(t, w.merged)
	all := w.unprivileged("apply")
	if all.sum.Failed != "" || len(all.conflicts) > 0 {
		t.Fatalf("%+v", all)
	}
	same(t, tree(t, w.repo), want)
}

// TestForeign checks a repository with directories of another owner.
func TestForeign(t *testing.T) {
	w := newWorld(t, project(t))
	m := at{t, w.merged}
	m.write("d/x", "X")
	m.chmod("run", 0o755)
	m.remove("e")
	m.write("b", "2")
	w.give()
	for _, path := range []string{"d", "run", "e/.git/hooks"} {
		check(t, os.Chown(filepath.Join(w.repo, path), 0, 0))
	}
	w.opened, w.merged = past(t), ""
	all := w.unprivileged("apply")
	if got := conflicts(all); !slices.Equal(got, []string{"d/x: unwritable", "e/.git/hooks: unwritable", "run: unwritable"}) {
		t.Errorf("%q", got)
	}
}

// unprivileged runs the tool as an unprivileged user who owns both trees.
func (w *world) unprivileged(args ...string) *output {
	w.t.Helper()
	if w.merged != "" {
		w.give()
		w.opened = past(w.t)
		w.merged = ""
	}
	exe, err := os.Executable()
	check(w.t, err)
	tool := filepath.Join(sandboxtest.OpenDir(w.t), "tool") // only root can access the directory of the test binary
	b, err := os.ReadFile(exe)
	check(w.t, err, os.WriteFile(tool, b, 0o755))
	cmd := exec.Command(tool, w.args(args)...)
	cmd.Env = []string{asTool + "=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: otherUID, Gid: otherUID}}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		w.t.Fatalf("%v: %s", err, &errs)
	}
	return readAll(w.t, out.Bytes())
}

const otherUID = 54_321

// give changes the owner of both trees.
func (w *world) give() {
	for _, root := range []string{w.repo, w.upper, filepath.Join(filepath.Dir(w.upper), "base")} {
		check(w.t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(path, otherUID, otherUID)
		}))
		for dir := filepath.Dir(root); dir != "/tmp" && dir != "/var/tmp" && dir != "/"; dir = filepath.Dir(dir) {
			check(w.t, os.Chmod(dir, 0o755))
		}
	}
}

// TestDeep checks trees deeper than Bounds.Depth.
func TestDeep(t *testing.T) {
	w := newWorld(t, project(t))
	deepen(t, w.merged, 300)
	if all := w.run("list"); !all.sum.Incomplete || all.sum.Failed != "" {
		t.Errorf("%+v", all.sum)
	}
	all := w.run("apply")
	if all.sum.Failed == "" || len(all.entries) > 0 {
		t.Errorf("%q %+v", all.lines(), all.sum)
	}
	same(t, tree(t, w.repo), tree(t, func() string { w := newWorld(t, project(t)); return w.repo }()))
}

// deepen creates nested directories whose path is longer than PATH_MAX.
func deepen(t *testing.T, root string, levels int) {
	fd, err := unix.Open(root, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	check(t, err)
	for range levels {
		check(t, unix.Mkdirat(fd, strings.Repeat("d", 100), 0o755))
		next, err := unix.Openat(fd, strings.Repeat("d", 100), unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		check(t, err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
}

// TestPlanted checks that links in the repository and the layer at written paths are not followed.
func TestPlanted(t *testing.T) {
	outside := t.TempDir()
	o := at{t, outside}
	o.write("x", "precious")
	o.write("sub/z", "precious")
	before := tree(t, outside)
	w := newWorld(t, project(t))
	m, r := at{t, w.merged}, at{t, w.repo}
	m.write("d/x", "X")
	m.write("d/sub/z", "Z")
	m.write("n/sub/z", "Z")
	m.remove("e")
	m.link(outside, "e")
	m.link(outside+"/x", "new")
	r.remove("d")
	r.link(outside, "d")
	r.link(outside, "n")
	all := w.run("apply")
	if got := conflicts(all); !slices.Equal(got, []string{"d: gone", "n: changed"}) {
		t.Errorf("%q", got)
	}
	// The same with links older than the session.
	w.opened = past(t)
	if all := w.run("apply"); !slices.Equal(conflicts(all), []string{"d: gone"}) {
		t.Errorf("%q %+v", conflicts(all), all.sum)
	}
	if all := w.run("apply", "n", "e", "new"); all.sum.Failed != "" || len(all.conflicts) > 0 {
		t.Errorf("%q %+v", conflicts(all), all.sum)
	}
	same(t, tree(t, outside), before)
	if got := tree(t, w.repo); got["n/sub/z"] == "" || got["e"] != "-> "+outside || got["new"] != "-> "+outside+"/x" {
		t.Errorf("%q", got)
	}
}

// TestSwapped replaces directories of the repository by links during an apply, and checks that it never writes outside.
func TestSwapped(t *testing.T) {
	outside := t.TempDir()
	o := at{t, outside}
	for _, n := range []string{"x", "y", "sub/z"} {
		o.write(n, "precious")
	}
	before := tree(t, outside)
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		w := newWorld(t, project(t))
		m := at{t, w.merged}
		m.write("d/x", strings.Repeat("X", 10_000))
		m.write("d/n", "N")
		m.remove("d/y")
		m.remove("d/sub")
		m.write("d/sub/n", "n")
		w.opened = time.Now().Add(time.Hour) // no change of the owner is a conflict
		var stop atomic.Bool
		var swaps sync.WaitGroup
		swaps.Go(func() {
			check(t, os.Symlink(outside, w.repo+"/swap"))
			for !stop.Load() {
				_ = unix.Renameat2(unix.AT_FDCWD, w.repo+"/swap", unix.AT_FDCWD, w.repo+"/d", unix.RENAME_EXCHANGE)
			}
		})
		for range 20 {
			var out bytes.Buffer
			check(t, Run(t.Context(), w.args([]string{"apply"}), &out))
		}
		stop.Store(true)
		swaps.Wait()
		same(t, tree(t, outside), before)
	}
}

// TestBusy checks an apply while a job writes to the layer.
func TestBusy(t *testing.T) {
	w := newWorld(t, project(t))
	var stop atomic.Bool
	var job sync.WaitGroup
	job.Go(func() {
		for i := 0; !stop.Load(); i++ {
			text := strings.Repeat(string(rune('a'+i%26)), 200_000)
			f, err := os.OpenFile(w.merged+"/b", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
			check(t, err)
			_, err = f.WriteString(text)
			check(t, err, f.Close())
			_ = os.Remove(w.merged + "/n")
			_ = os.Mkdir(w.merged+"/n", 0o755)
			_ = os.WriteFile(w.merged+"/n/f", nil, 0o644)
			_ = os.RemoveAll(w.merged + "/n")
			_ = os.WriteFile(w.merged+"/n", nil, 0o644)
		}
	})
	for range 100 {
		all := w.run("apply")
		for _, c := range all.conflicts {
			if c.Reason == stream.Gone || c.Reason == stream.Unknown {
				t.Errorf("%+v", c)
			}
		}
		b, err := os.ReadFile(w.repo + "/b")
		check(t, err)
		if len(b) > 0 && string(b) != "two\n" && strings.Trim(string(b), string(b[:1])) != "" {
			t.Fatalf("a mixture of two states: %d bytes", len(b))
		}
	}
	stop.Store(true)
	job.Wait()
	w.fresh()
	check(t, os.Remove(filepath.Join(filepath.Dir(w.upper), "base", stateName))) // with the conflicts of a job that wrote meanwhile
	w.opened = past(t)
	w.applied()
}
