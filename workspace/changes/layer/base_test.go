package layer

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// takes runs a command that makes the repository's state the session's, and returns its conflicts.
func (w *world) takes(args ...string) []string {
	w.t.Helper()
	all := w.run(args...)
	if all.sum.Failed != "" || all.sum.Incomplete {
		w.t.Fatalf("%q: %+v", args, all.sum)
	}
	past(w.t)
	return conflicts(all)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
}

// replace is what editors and git do: a new file takes the name.
func replace(t testing.TB, path string) {
	t.Helper()
	write(t, path+".tmp", "the owner's")
	check(t, os.Rename(path+".tmp", path))
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	check(t, err)
	return string(b)
}

func none(t testing.TB, got []string) {
	t.Helper()
	if len(got) > 0 {
		t.Errorf("conflicts: %q", got)
	}
}

// TestApplyTwice: what an apply wrote is what the session then works on: the same paths can be changed and applied again.
func TestApplyTwice(t *testing.T) {
	w := newWorld(t, project(t))
	m := at{t, w.merged}
	rounds := []func(){
		func() {
			m.write("a", "1")
			m.write("new/x", "1")
			m.write("new/y", "1")
			m.remove("b")
			m.chmod("run", 0o755)
		},
		func() { m.write("a", "2"); m.write("new/x", "2"); m.write("b", "again"); m.chmod("run", 0o600) },
		func() { m.remove("new/y"); m.chmod("new", 0o700); m.move("a", "moved"); m.remove("d") },
		func() { m.move("moved", "a"); m.write("d", "a file now"); m.write("newer/x", "3") },
		func() { m.remove("newer"); m.remove("d"); m.write("d/x", "1") },
	}
	for n, round := range rounds {
		round()
		want := tree(t, w.merged)
		if got := w.takes("apply"); len(got) > 0 {
			t.Fatalf("apply %d: conflicts: %q", n+1, got)
		}
		same(t, tree(t, w.repo), want)
		same(t, tree(t, w.merged), want)
		if names, err := os.ReadDir(w.upper); err != nil || len(names) > 0 {
			t.Errorf("apply %d leaves %v in the layer, %v", n+1, names, err)
		}
	}
}

// TestApplyPartsTwice applies one path after the other, while the repository's owner changes others.
func TestApplyPartsTwice(t *testing.T) {
	w := newWorld(t, project(t))
	m := at{t, w.merged}
	m.remove("d")
	m.write("d/mine", "1") // d now hides the repository's
	m.write("a", "1")
	m.write("b", "1")
	past(t)
	replace(t, filepath.Join(w.repo, "b"))
	past(t)
	none(t, w.takes("apply", "a"))
	none(t, w.takes("apply", "d/mine"))
	if got := read(t, filepath.Join(w.merged, "d/mine")); got != "1" {
		t.Errorf("d/mine is %q", got)
	}
	if _, err := os.Lstat(filepath.Join(w.merged, "d/x")); err == nil {
		t.Error("a removed file is there again")
	}
	m.write("a", "2")
	m.write("d/mine", "2")
	none(t, w.takes("apply", "a", "d"))
	if got := w.takes("apply", "b"); !slices.Equal(got, []string{"b: changed"}) {
		t.Errorf("conflicts of b: %q", got)
	}
	if got := read(t, filepath.Join(w.repo, "b")); got != "the owner's" {
		t.Errorf("b is %q", got)
	}
}

// TestRefresh: a session works on while the repository's owner does, and takes what it has not changed.
func TestRefresh(t *testing.T) {
	w := newWorld(t, project(t))
	m, r := at{t, w.merged}, func(name string) string { return filepath.Join(w.repo, name) }
	for _, name := range []string{"run", "b", "d/x", "d/y"} { // the overlay caches them
		read(t, filepath.Join(w.merged, name))
	}
	m.write("run", "the session's")
	m.write("own", "the session's")
	replace(t, r("run"))
	replace(t, r("b"))
	write(t, r("d/x"), "the owner's")
	check(t, os.Remove(r("d/y")))
	newer := w.run("newer")
	if got, want := newers(newer), []string{"b", "d/x", "run touched"}; !slices.Equal(got, want) {
		t.Errorf("newer: %q, want %q", got, want)
	}
	if got, want := newers(w.run("newer", "d/x", "run", "own")), []string{"d/x", "run touched"}; !slices.Equal(got, want) {
		t.Errorf("newer among paths: %q, want %q", got, want)
	}
	past(t)
	changed := []string{"run: changed"}
	if got := w.takes("refresh"); !slices.Equal(got, changed) {
		t.Errorf("refresh: %q", got)
	}
	for name, want := range map[string]string{"run": "the session's", "own": "the session's", "b": "the owner's", "d/x": "the owner's"} {
		if got := read(t, filepath.Join(w.merged, name)); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if _, err := os.Lstat(filepath.Join(w.merged, "d/y")); err == nil {
		t.Error("d/y is still there")
	}
	if got := newers(w.run("newer")); !slices.Equal(got, []string{"run touched"}) {
		t.Errorf("newer after the refresh: %q", got)
	}
	m.write("b", "after the refresh")
	if got := w.takes("apply"); !slices.Equal(got, changed) {
		t.Errorf("apply after a refresh: %q", got)
	}
	none(t, w.takes("apply", "b", "own"))
	if all := w.run("refresh", "own"); !strings.Contains(all.sum.Failed, "no conflict at this path") {
		t.Errorf("accepting what is not in conflict: %+v", all.sum)
	}
	none(t, w.takes("refresh", "run"))
	none(t, w.takes("apply"))
	if got := read(t, r("run")); got != "the session's" {
		t.Errorf("run is %q", got)
	}
}

// newers returns what a stream says is newer in the repository.
func newers(all *output) (lines []string) {
	for _, n := range all.newer {
		line := n.Path
		if n.Dir {
			line += "/"
		}
		if n.Touched {
			line += " touched"
		}
		lines = append(lines, line)
	}
	return lines
}

// TestNewerRemoved: a file that was removed is no longer there to be reported, so its directory is. A git directory is one line.
func TestNewerRemoved(t *testing.T) {
	w := newWorld(t, project(t))
	check(t, os.Remove(filepath.Join(w.repo, "d/x")))
	write(t, filepath.Join(w.repo, "e/.git/objects/aa/bb"), "x")
	write(t, filepath.Join(w.repo, "e/.git/HEAD"), "x")
	if got, want := newers(w.run("newer")), []string{"d/", "e/.git/"}; !slices.Equal(got, want) {
		t.Errorf("newer: %q, want %q", got, want)
	}
	if all := w.run("newer", "-most=1"); len(all.newer) != 1 || all.sum.Newer != 2 {
		t.Errorf("with a bound: %v, %+v", all.newer, all.sum)
	}
}

// TestRevert gives up some of what a session changed.
func TestRevert(t *testing.T) {
	w := newWorld(t, project(t))
	before := tree(t, w.repo)
	m := at{t, w.merged}
	m.write("a", "mine")
	m.remove("b")
	m.remove("d/sub")
	m.write("new/deep/x", "mine")
	m.chmod("run", 0o700)
	m.remove("empty")
	m.write("empty", "a file")
	replace(t, filepath.Join(w.repo, "a"))
	past(t)
	for _, tt := range []struct{ path, err string }{
		{"nothing", "no change"}, {"d/sub/z", `the session removed "d/sub"`}, {"d/y", "no change"},
	} {
		if all := w.run("revert", tt.path); !strings.Contains(all.sum.Failed, tt.err) {
			t.Errorf("%s: %q, want %q", tt.path, all.sum.Failed, tt.err)
		}
	}
	none(t, w.takes("revert", "a", "b", "d", "new/deep"))
	none(t, w.takes("revert", "empty", "run", "new"))
	want := tree(t, w.repo)
	same(t, tree(t, w.merged), want)
	if want["a"] == before["a"] {
		t.Error("the owner's change of a is lost")
	}
	m.write("a", "on top of the owner's")
	none(t, w.takes("apply"))
	m.write("a", "x")
	m.write("z", "x")
	none(t, w.takes("revert"))
	same(t, tree(t, w.merged), tree(t, w.repo))
}

// TestRevertInReplacedDirectory: below a directory that hides the repository's, a path cannot be reverted by itself.
func TestRevertInReplacedDirectory(t *testing.T) {
	w := newWorld(t, project(t))
	m := at{t, w.merged}
	m.remove("d")
	m.write("d/x", "mine")
	if all := w.run("revert", "d/x"); !strings.Contains(all.sum.Failed, `replaced the directory "d"`) {
		t.Errorf("%+v", all.sum)
	}
	none(t, w.takes("revert", "d"))
	same(t, tree(t, w.merged), tree(t, w.repo))
}

// TestForgedBase: the base is read strictly.
func TestForgedBase(t *testing.T) {
	w := newWorld(t, project(t))
	state := filepath.Join(filepath.Dir(w.upper), "base", stateName)
	for _, text := range []string{"", "x", stateFormat + " x\n", stateFormat + " 1\n\x01a", stateFormat + " 1\n\x00"} {
		write(t, state, text)
		cmd := exec.Command(os.Args[0], w.args([]string{"newer"})...)
		cmd.Env = append(os.Environ(), asTool+"=1")
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "the session's base") {
			t.Errorf("%q: %s, %v", text, out, err)
		}
	}
}

// TestSweep: an apply removes what a killed one of the session left, also where it changes nothing itself. Similar names are not its own.
func TestSweep(t *testing.T) {
	w := newWorld(t, project(t))
	left, similar := filepath.Join(w.repo, "d/sub", newTemps().name()), filepath.Join(w.repo, "d", tempPrefix+"mine")
	write(t, left, "half")
	write(t, similar, "a user's")
	m := at{t, w.merged}
	m.write("new", "x")
	m.write("newer", "x")
	none(t, w.takes("apply", "new"))
	if read(t, left) != "half" {
		t.Error("an apply searched the whole repository, though the one before it had ended")
	}
	write(t, filepath.Join(filepath.Dir(w.upper), "base", applying), "")
	if all := w.run("apply", "-dry-run"); all.sum.Failed != "" || read(t, left) != "half" {
		t.Errorf("a dry run: %+v", all.sum)
	}
	none(t, w.takes("apply", "newer"))
	if _, err := os.Lstat(left); err == nil || read(t, similar) != "a user's" {
		t.Errorf("%s is left", left)
	}
}
