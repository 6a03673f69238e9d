package layer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// An at edits files below a directory, and fails the test on errors.
type at struct {
	t   testing.TB
	dir string
}

func (a at) path(name string) string { return filepath.Join(a.dir, name) }

func (a at) write(name, content string) {
	a.t.Helper()
	check(a.t, os.MkdirAll(filepath.Dir(a.path(name)), 0o755), os.WriteFile(a.path(name), []byte(content), 0o644))
}

func (a at) mkdir(name string)           { a.t.Helper(); check(a.t, os.MkdirAll(a.path(name), 0o755)) }
func (a at) remove(name string)          { a.t.Helper(); check(a.t, os.RemoveAll(a.path(name))) }
func (a at) link(to, name string)        { a.t.Helper(); check(a.t, os.Symlink(to, a.path(name))) }
func (a at) move(from, to string)        { a.t.Helper(); check(a.t, os.Rename(a.path(from), a.path(to))) }
func (a at) chmod(name string, m uint32) { a.t.Helper(); check(a.t, unix.Chmod(a.path(name), m)) }

// project is the repository of most tests.
func project(t testing.TB) func(string) {
	return func(repo string) {
		r := at{t, repo}
		r.write("a", "one\n")
		r.write("b", "two\n")
		r.write("run", "#!/bin/sh\n")
		r.write("d/x", "x\n")
		r.write("d/y", "y\n")
		r.write("d/sub/z", "z\n")
		r.write("e/.git/hooks/pre-commit", "true\n")
		r.write("e/.git/config", "[core]\n")
		r.write("e/.git/objects/00", "0\n")
		r.mkdir("empty")
		r.link("a", "l")
		r.link("/etc/passwd", "out")
		check(t, os.Link(r.path("a"), r.path("hard")))
	}
}

var edits = []struct {
	name string
	edit func(m at)
	want []string
}{
	{"nothing", func(at) {}, nil},
	{"read", func(m at) { _, err := os.ReadFile(m.path("a")); check(m.t, err) }, nil},
	{"written with what it was", func(m at) { m.write("b", "two\n") }, nil},
	{"written to and back", func(m at) { m.write("b", "x\n"); m.write("b", "two\n"); m.remove("d/x"); m.write("d/x", "x\n") }, nil},
	{"touched", func(m at) { check(m.t, os.Chtimes(m.path("b"), past(m.t), past(m.t))) }, nil},
	{"modified", func(m at) { m.write("b", "2\n"); m.write("d/x", "X\n") }, []string{"modified file b", "modified file d/x"}},
	{"truncated", func(m at) { m.write("b", "") }, []string{"modified file b"}},
	{"added", func(m at) { m.write("c", "c"); m.write("new/in/here", ""); m.mkdir("bare") }, []string{
		"added directory bare", "added directory new", "added directory new/in", "added file c", "added file new/in/here",
	}},
	{"deleted", func(m at) { m.remove("a"); m.remove("d"); m.remove("l"); m.remove("empty") }, []string{
		"deleted directory d", "deleted directory empty", "deleted file a", "deleted link l",
	}},
	{"deleted inside", func(m at) { m.remove("d/sub"); m.remove("d/y") }, []string{"deleted directory d/sub", "deleted file d/y"}},
	{"directory re-created", func(m at) { m.remove("d"); m.write("d/x", "x\n"); m.write("d/n", "n\n"); m.write("d/y", "Y\n") }, []string{
		"added file d/n", "deleted directory d/sub", "modified file d/y",
	}},
	{"file becomes directory", func(m at) { m.remove("a"); m.write("a/b/c", "c\n") }, []string{
		"added directory a/b", "added file a/b/c", "replaced directory a was file",
	}},
	{"directory becomes file", func(m at) { m.remove("d"); m.write("d", "d\n") }, []string{"replaced file d was directory"}},
	{"directory becomes link", func(m at) { m.remove("d"); m.link("/", "d") }, []string{"replaced link d was directory"}},
	{"link becomes directory", func(m at) { m.remove("out"); m.write("out/f", "f") }, []string{
		"added file out/f", "replaced directory out was link",
	}},
	{"file becomes link", func(m at) { m.remove("a"); m.link("b", "a") }, []string{"replaced link a was file"}},
	{"link changes", func(m at) { m.remove("l"); m.link("b", "l") }, []string{"modified link l"}},
	{"link to the same", func(m at) { m.remove("l"); m.link("a", "l") }, nil},
	{"through a link", func(m at) { m.write("l", "by the link\n") }, []string{"modified file a"}},
	{"mode", func(m at) { m.chmod("run", 0o755); m.chmod("d", 0o700); m.chmod("hard", 0o600) }, []string{
		"mode directory d", "mode file hard", "mode file run",
	}},
	{"directory without permissions for others", func(m at) { m.write("d/x", "X"); m.chmod("d", 0o555); m.chmod("d/x", 0o400) }, []string{
		"mode directory d", "modified file d/x",
	}},
	{"moved", func(m at) { m.move("b", "bb"); m.move("d/sub/z", "z") }, []string{
		"added file bb", "added file z", "deleted file b", "deleted file d/sub/z",
	}},
	{"exchanged", func(m at) { m.move("a", "t"); m.move("b", "a"); m.move("t", "b") }, []string{"modified file a", "modified file b"}},
	{"moved out of what is deleted", func(m at) { m.move("d/sub/z", "z"); m.remove("d") }, []string{"added file z", "deleted directory d"}},
	{"one name of two is changed", func(m at) { m.write("hard", "more") }, []string{"modified file hard"}},
	{"both names are deleted", func(m at) { m.remove("hard"); m.remove("a") }, []string{"deleted file a", "deleted file hard"}},
	{"both names are changed", func(m at) { m.write("hard", "1"); m.write("a", "2") }, []string{"modified file a", "modified file hard"}},
	{"linked", func(m at) { check(m.t, os.Link(m.path("b"), m.path("b2"))); m.write("b", "two names\n") }, []string{"added file b2", "modified file b"}},
	{"sensitive", func(m at) {
		m.write("e/.git/hooks/post-commit", "x")
		m.remove("e/.git/config")
		m.write(".vscode/tasks.json", "{}")
		m.write("e/.git/objects/00", "1\n")
		m.write("sub/.ENVRC", "x")
	}, []string{
		"added directory .vscode !", "added directory sub", "added file .vscode/tasks.json !", "added file e/.git/hooks/post-commit !",
		"added file sub/.ENVRC !", "deleted file e/.git/config !", "modified file e/.git/objects/00",
	}},
	{"sensitive below what is deleted", func(m at) { m.remove("e") }, []string{"deleted directory e !"}},
	{"a bare repository", func(m at) {
		m.write("d/HEAD", "ref")
		m.mkdir("d/refs")
		m.mkdir("d/objects")
		m.write("d/config", "x")
	}, []string{
		"added directory d/objects", "added directory d/refs", "added file d/HEAD !", "added file d/config !",
	}},
	{"no bare repository", func(m at) { m.mkdir("d/refs"); m.mkdir("d/objects"); m.write("d/config", "x") }, []string{
		"added directory d/objects", "added directory d/refs", "added file d/config",
	}},
	{"odd names", func(m at) {
		for _, n := range oddNames {
			m.write("odd/"+n, n)
			m.write(n+"/f", n)
		}
	}, oddLines()},
}

var oddNames = []string{"new\nline", "q\"uote", "tab\t", " ", "back\\slash", "\xff\xfe", "é", "\x1b[31m", "-rf", "...", strings.Repeat("n", 255)}

func oddLines() []string {
	lines := []string{"added directory odd"}
	for _, n := range oddNames {
		lines = append(lines, "added file odd/"+n, "added directory "+n, "added file "+n+"/f")
	}
	slices.Sort(lines)
	return lines
}

func TestEdits(t *testing.T) {
	for _, tt := range edits {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, project(t))
			tt.edit(at{t, w.merged})
			before := tree(t, w.repo)
			for _, args := range [][]string{{"list"}, {"apply", "-dry-run"}} {
				all := w.run(args...)
				if got := all.lines(); !slices.Equal(got, tt.want) || len(all.conflicts) > 0 || all.sum.Incomplete || all.sum.More > 0 {
					t.Errorf("%s: %q, want %q; %v %+v", args, got, tt.want, all.conflicts, all.sum)
				}
				if all.sum.Entries != int64(len(tt.want)) {
					t.Errorf("%s: %d entries", args, all.sum.Entries)
				}
			}
			same(t, tree(t, w.repo), before)
			if got := w.applied().lines(); !slices.Equal(got, tt.want) {
				t.Errorf("applied %q, want %q", got, tt.want)
			}
		})
	}
}

// TestDiff checks that the contents of both sides are written.
func TestDiff(t *testing.T) {
	w := newWorld(t, project(t))
	m := at{t, w.merged}
	m.write("b", "2\n")
	m.write("n", "new\n")
	m.remove("d")
	m.remove("l")
	m.link("b", "l")
	m.chmod("run", 0o755)
	m.write(".git/config", "x")
	m.write("big", strings.Repeat("x", 5<<20))
	all := w.run("diff")
	want := map[string]string{
		"old b": "two\n", "new b": "2\n", "new n": "new\n", "old d/x": "x\n", "old d/y": "y\n", "old d/sub/z": "z\n",
		"old l": "a", "new l": "b", "old .git": "left out: 4", "old .git/config": "left out: 4", "new big": "left out: 1",
	}
	same(t, all.contents, want)
	if all.sum.Incomplete {
		t.Errorf("%+v", all.sum)
	}
}

// TestListLimit checks that entries beyond -most are counted, and that sensitive ones are still written.
func TestListLimit(t *testing.T) {
	w := newWorld(t, project(t))
	m := at{t, w.merged}
	for _, n := range []string{"m1", "m2", "m3", "z/.vscode/x"} {
		m.write(n, "x")
	}
	all := w.run("list", "-most=2")
	want := []string{"added directory z/.vscode !", "added file m1", "added file m2", "added file z/.vscode/x !"}
	if got := all.lines(); !slices.Equal(got, want) || all.sum.More != 2 || all.sum.Entries != 6 || all.sum.Bytes != 4 {
		t.Errorf("%q %+v", got, all.sum)
	}
}

func TestPaths(t *testing.T) {
	for _, tt := range []struct {
		name  string
		paths []string
		want  []string
		fails string
	}{
		{"a file", []string{"b"}, []string{"modified file b"}, ""},
		{"a directory", []string{"d"}, []string{"deleted file d/y", "mode directory d", "modified file d/x"}, ""},
		{"in a directory", []string{"d/x"}, []string{"modified file d/x"}, ""},
		{"with its parents", []string{"new/in/here"}, []string{"added directory new", "added directory new/in", "added file new/in/here"}, ""},
		{"below what is deleted", []string{"e/.git/config"}, []string{"deleted file e/.git/config !"}, ""},
		{"below what was a directory", []string{"g/one"}, []string{"deleted file g/one"}, ""},
		{"below what was a file", []string{"a/b"}, []string{"added file a/b", "replaced directory a was file"}, ""},
		{"twice", []string{"./d/../b", "b", "b"}, []string{"modified file b"}, ""},
		{"everything", []string{"b", "."}, nil, ""},
		{"not changed", []string{"run"}, nil, `"run": no change at this path`},
		{"not there", []string{"b", "no/such"}, []string{"modified file b"}, `"no/such": no change at this path`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(repo string) {
				project(t)(repo)
				at{t, repo}.write("g/one", "1\n")
				at{t, repo}.write("g/two", "2\n")
			})
			m := at{t, w.merged}
			m.write("b", "2\n")
			m.write("d/x", "X\n")
			m.remove("d/y")
			m.chmod("d", 0o700)
			m.write("new/in/here", "h\n")
			m.write("new/in/there", "t\n")
			m.remove("e")
			m.remove("g")
			m.write("g", "g\n")
			m.remove("a")
			m.write("a/b", "b\n")
			if tt.want == nil && tt.fails == "" {
				tt.want = w.run("list").lines()
			}
			for _, word := range []string{"list", "apply"} {
				all := w.run(append([]string{word}, tt.paths...)...)
				want := tt.want
				if word == "apply" && tt.fails != "" {
					want = nil // an apply with a missing path applies nothing
				}
				if got := all.lines(); !slices.Equal(got, want) || all.sum.Failed != tt.fails || len(all.conflicts) > 0 {
					t.Errorf("%s: %q, want %q; %v %+v", word, got, want, all.conflicts, all.sum)
				}
			}
			if tt.fails == "" {
				if left := w.run("list", tt.paths[0]); left.sum.Failed == "" {
					t.Errorf("left over: %q", left.lines())
				}
			}
		})
	}
}

func TestCleanPaths(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want string // "" for an error
	}{
		{"a", "a"},
		{"a/b a a-b", "a a-b"},
		{"./a/ b/../c", "a c"},
		{"a .", "all"},
		{"/a", ""},
		{"..", ""},
		{"a/../../b", ""},
		{"a\x00b", ""},
	} {
		got, err := CleanPaths(strings.Fields(tt.in))
		text := strings.Join(got, " ")
		if err == nil && got == nil {
			text = "all"
		}
		if text != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%q: %q, %v", tt.in, got, err)
		}
	}
	if _, err := CleanPaths([]string{""}); err == nil {
		t.Error("an empty path was accepted")
	}
	if _, err := CleanPaths(make([]string, MaxPaths+1)); err == nil {
		t.Error("too many paths were accepted")
	}
}
