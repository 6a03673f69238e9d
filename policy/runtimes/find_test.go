package runtimes

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A fake is a host in a directory: usr belongs to the system, the rest does not.
type fake struct {
	t   *testing.T
	dir string
}

func newFake(t *testing.T, programs ...string) fake {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := fake{t, dir}
	for _, p := range append(programs, "usr/bin/") {
		f.put(p)
	}
	return f
}

// put creates a directory for "a/", a link for "a -> b", where a leading / of b means the fake's root, and a program for
// "a".
func (f fake) put(what string) {
	f.t.Helper()
	name, target, link := strings.Cut(what, " -> ")
	path := f.at(name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	switch {
	case strings.HasSuffix(name, "/"):
		err = errors.Join(err, os.MkdirAll(path, 0o755))
	case link && filepath.IsAbs(target):
		err = errors.Join(err, os.Symlink(f.at(target), path))
	case link:
		err = errors.Join(err, os.Symlink(target, path))
	default:
		err = errors.Join(err, os.WriteFile(path, nil, 0o755))
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f fake) text(name, content string) {
	f.t.Helper()
	path := f.at(name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		f.t.Fatal(err)
	}
}

func (f fake) at(name string) string { return filepath.Join(f.dir, name) }

// find searches the fake; toolchains and never are relative to it.
func (f fake) find(toolchains, never []string) Installed {
	p := Places{host: host{
		dirs:   []string{f.at("usr/local/bin"), f.at("usr/bin"), f.at("usr/lib/jvm") + "/*/bin", f.at("opt") + "/*/bin"},
		trees:  []string{f.at("usr"), f.at("opt")},
		caches: []string{f.at("usr/lib/corral/go-build")},
		owner:  uint32(os.Getuid()),
	}}
	for _, t := range toolchains {
		p.Toolchains = append(p.Toolchains, f.at(t))
	}
	for _, n := range never {
		p.Never = append(p.Never, f.at(n))
	}
	return Find(p)
}

// expect checks that Choose returns the program at path, relative to the fake, or an explanation that contains missing.
func (f fake) expect(name string, i Installed, runtime, executable, path, missing string) Choice {
	f.t.Helper()
	c, reason := i.Choose(runtime, executable, nil)
	if path != "" {
		path = f.at(path)
	}
	if c.Path != path || !strings.Contains(reason, missing) || (missing == "") != (reason == "") {
		f.t.Errorf("%s: %q, %q, want %q, %q", name, c.Path, reason, path, missing)
	}
	return c
}

func TestChoose(t *testing.T) {
	f := newFake(t,
		"usr/bin/python3 -> python3.11", "usr/bin/python3.11", "usr/local/bin/python3.12", "usr/bin/sh", "usr/bin/gcc -> /etc/alternatives/gcc",
		"etc/alternatives/gcc -> /usr/bin/gcc-12", "usr/bin/gcc-12", "usr/bin/clang++", "home/bin/python", "usr/bin/ruby -> /home/bin/ruby", "home/bin/ruby",
		"usr/local/bin/perl -> /tmp/perl", "tmp/perl", "usr/bin/perl", "opt/repo/bin/php", "opt/other/bin/php8.2", "usr/bin/node -> loop", "usr/bin/loop -> node",
		"usr/bin/go/", "usr/bin/Rscript",
	)
	if err := os.Chmod(f.at("usr/bin/Rscript"), 0o644); err != nil {
		t.Fatal(err)
	}
	i := f.find(nil, []string{"opt/repo"})
	for _, tt := range []struct{ name, runtime, executable, path, missing string }{
		{"the first", "python", "", "usr/bin/python3", ""},
		{"by version", "python", "python3.12", "usr/local/bin/python3.12", ""},
		{"by path", "python", f.at("usr/bin/python3.11"), "usr/bin/python3.11", ""},
		{"by a path to be cleaned", "python", f.at("usr") + "/bin/../bin/./python3", "usr/bin/python3", ""},
		{"the second", "shell", "", "usr/bin/sh", ""},
		{"through alternatives", "c", "", "usr/bin/gcc", ""},
		{"the last, by its own name", "cpp", "", "usr/bin/clang++", ""},
		{"not there", "python", "python2", "", "looked for python2 in " + f.at("usr/local/bin") + ", " + f.at("usr/bin")},
		{"elsewhere", "python", f.at("home/bin/python"), "", "neither in a system directory nor in a toolchain"},
		{"a relative path", "python", "bin/python", "", `executable "bin/python" must be a name or an absolute path`},
		{"a path that leaves the system", "python", f.at("usr") + "/../home/bin/python", "", "neither in a system directory"},
		{"a link out of the system", "ruby", "", "", "rejected " + f.at("usr/bin/ruby") + ": it leads to " + f.at("home/bin/ruby")},
		{"another behind a link to /tmp", "perl", "", "usr/bin/perl", ""},
		{"in a repository", "php", "", "", "no toolchains are configured"},
		{"in a repository, by path", "php", f.at("opt/repo/bin/php"), "", "it is in a repository"},
		{"below /opt", "php", "php8.2", "opt/other/bin/php8.2", ""},
		{"a link to itself", "node", "", "", "its symbolic links cannot be resolved"},
		{"a directory", "go", "", "", "looked for go in"},
		{"no program", "r", "", "", "it is not an executable file\nhint: apt-get install r-base-core"},
		{"nothing at all", "elixir", "", "", "hint: apt-get install elixir"},
		{"another's", "python", "sh", "", `"sh" does not run python: use one of python3, python`},
		{"no such runtime", "cobol", "", "", `unknown runtime "cobol"`},
	} {
		f.expect(tt.name, i, tt.runtime, tt.executable, tt.path, tt.missing)
	}
	if c, missing := (Installed{}).Choose("python", "", nil); missing == "" {
		t.Errorf("the zero Installed has %q", c.Path)
	}
}

func TestAllowed(t *testing.T) {
	f := newFake(t, "usr/bin/bash", "usr/bin/sh", "usr/bin/python3")
	i := f.find(nil, nil)
	only := func(names ...string) func(string) bool {
		return func(name string) bool { return slices.Contains(names, name) }
	}
	if c, missing := i.Choose("shell", "", only("sh")); c.Path != f.at("usr/bin/sh") {
		t.Errorf("%q, %q", c.Path, missing)
	}
	for _, executable := range []string{"bash", f.at("usr/bin/bash"), ""} {
		if c, missing := i.Choose("shell", executable, only("python3")); !strings.Contains(missing, "no program that runs shell is allowed") {
			t.Errorf("%q, %q", c.Path, missing)
		}
	}
}

func TestCompatible(t *testing.T) {
	for _, tt := range []struct {
		runtime, executable string
		want                bool
	}{
		{"python", "python3", true},
		{"python", "python3.11", true},
		{"python", "/usr/bin/python3", true},
		{"python", "python2.7", true},
		{"c", "gcc-12", true},
		{"cpp", "clang++-15", true},
		{"php", "php8.2", true},
		{"python", "", false},
		{"python", "node", false},
		{"python", "python3-config", false},
		{"python", "python3.", false},
		{"python", "python3..1", false},
		{"python", "ipython3", false},
		{"python", "PYTHON3", false},
		{"c", "gcc-", false},
		{"c", "gcc-ar-12", false},
		{"c", "g++", false},
		{"shell", "bash\n", false},
		{"r", "R", false},
	} {
		r, ok := Lookup(tt.runtime)
		if !ok || r.Compatible(tt.executable) != tt.want {
			t.Errorf("%s, %q: want %v", tt.runtime, tt.executable, tt.want)
		}
	}
}

// TestNeeds checks that programs needed by another are found, first beside it, and that a program that lacks one is
// rejected.
func TestNeeds(t *testing.T) {
	f := newFake(t, "usr/bin/mcs", "usr/lib/node/bin/tsx", "usr/local/bin/tsx -> /usr/lib/node/bin/tsx", "usr/lib/node/bin/node",
		"usr/bin/java -> /usr/lib/jvm/jre/bin/java", "usr/lib/jvm/jre/bin/java", "usr/lib/jvm/jdk-9/bin/java", "usr/lib/jvm/jdk-9/bin/javac",
		"usr/lib/jvm/jdk-17/bin/java", "usr/lib/jvm/jdk-17/bin/javac", "usr/bin/node", "usr/bin/kotlinc")
	f.text("usr/lib/jvm/jdk-9/release", "IMPLEMENTOR=\"x\"\nJAVA_VERSION=\"1.8.0_292\"\n")
	f.text("usr/lib/jvm/jdk-17/release", "JAVA_VERSION=\"17.0.2\"\n")
	i := f.find(nil, nil)
	f.expect("without Mono", i, "csharp", "", "", "mcs: it needs mono, which was not found")
	c := f.expect("a script of Node's", i, "typescript", "", "usr/local/bin/tsx", "")
	if want := f.at("usr/lib/node/bin/node"); c.with["node"] != want || !strings.HasPrefix(c.paths, filepath.Dir(want)+":") {
		t.Errorf("%v, %s", c.with, c.paths)
	}
	c = f.expect("a JDK behind a JRE, the latest", i, "java", "", "usr/lib/jvm/jdk-17/bin/java", "")
	if c.with["javac"] != f.at("usr/lib/jvm/jdk-17/bin/javac") || c.old {
		t.Errorf("%+v", c)
	}
	if c = f.expect("a JDK by path", i, "java", f.at("usr/lib/jvm/jdk-9/bin/java"), "usr/lib/jvm/jdk-9/bin/java", ""); !c.old {
		t.Error("Java 8 was not recognized as old")
	}
	f.expect("a JRE by path", i, "java", f.at("usr/bin/java"), "", "it is a JRE, not a JDK")
	c = f.expect("Kotlin", i, "kotlin", "", "usr/bin/kotlinc", "")
	if !slices.Contains(c.env, "JAVA_HOME="+f.at("usr/lib/jvm/jre")) {
		t.Errorf("%q", c.env)
	}
	f.put("usr/bin/mono")
	f.expect("with Mono", i, "csharp", "", "usr/bin/mcs", "")
}

// TestStripTypes checks that Node runs TypeScript only if it is known to be new enough.
func TestStripTypes(t *testing.T) {
	for _, tt := range []struct {
		dir, header string
		want        bool
	}{
		{"plain", "", false},
		{"v22.6.0", "", true},
		{"v22.5.1", "", false},
		{"v100.0.0", "", true},
		{"plain", "#define NODE_MAJOR_VERSION 22\n#define NODE_MINOR_VERSION 12\n", true},
		{"v22.6.0", "#define NODE_MAJOR_VERSION 20\n#define NODE_MINOR_VERSION 12\n", false},
	} {
		f := newFake(t, "usr/lib/"+tt.dir+"/bin/node", "usr/bin/node -> /usr/lib/"+tt.dir+"/bin/node")
		if tt.header != "" {
			f.text("usr/lib/"+tt.dir+"/include/node/node_version.h", "/* */\n"+tt.header)
		}
		if _, missing := f.find(nil, nil).Choose("typescript", "", nil); (missing == "") != tt.want {
			t.Errorf("%s, %q: %q", tt.dir, tt.header, missing)
		}
	}
}

// TestChanges checks that the next choice sees programs that were installed, removed or replaced.
func TestChanges(t *testing.T) {
	f := newFake(t)
	i := f.find([]string{"tools", "home/.pyenv"}, nil)
	f.expect("nothing", i, "python", "", "", "looked for python3, python")
	f.put("usr/bin/python3")
	f.expect("installed", i, "python", "", "usr/bin/python3", "")
	f.put("tools/bin/python3")
	f.expect("in a new toolchain", i, "python", "", "tools/bin/python3", "")
	if err := os.RemoveAll(f.at("tools")); err != nil {
		t.Fatal(err)
	}
	f.put("tools/bin/python")
	f.expect("gone from the toolchain", i, "python", "", "usr/bin/python3", "")
	f.put("tmp/evil")
	if err := errors.Join(os.Remove(f.at("usr/bin/python3")), os.Symlink(f.at("tmp/evil"), f.at("usr/bin/python3"))); err != nil {
		t.Fatal(err)
	}
	f.expect("replaced by a link", i, "python", "", "tools/bin/python", "")
	f.text("home/.pyenv/version", "3.1\n")
	f.put("home/.pyenv/versions/3.1/bin/python3")
	f.put("home/.pyenv/versions/3.2/bin/python3")
	f.expect("a manager", i, "python", "", "home/.pyenv/versions/3.1/bin/python3", "")
	f.text("home/.pyenv/version", "3.2 and more\n")
	f.expect("a manager's other version", i, "python", "", "home/.pyenv/versions/3.2/bin/python3", "")
}

func TestPath(t *testing.T) {
	f := newFake(t, "usr/local/bin/x", "opt/x/bin/", "home/tools/bin/x", "home/flat/x")
	want := strings.Join([]string{f.at("home/tools/bin"), f.at("home/flat"), f.at("usr/local/bin"), f.at("usr/bin")}, ":")
	if got := f.find([]string{"home/tools", "home/flat", "home/none"}, nil).Path(); !strings.HasPrefix(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}
