package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"corral/internal/config/strict"
)

// write writes a file with its directory. Both get modes whatever the umask is.
func write(t *testing.T, path, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644), os.Chmod(path, 0o644),
		os.Chmod(filepath.Dir(path), 0o755)); err != nil {
		t.Fatal(err)
	}
}

// TestEntries: entries in files follow those of the configuration file, in the order of the names.
func TestEntries(t *testing.T) {
	dir := t.TempDir()
	main := filepath.Join(dir, "config.yaml")
	for name, content := range map[string]string{
		"config.yaml":             "version: 1\nrepos: [{path: /m}]\nprofiles: {p: {}}\n",
		"repos.d/b.yaml":          "path: /srv/b\nprofile: p\n",
		"repos.d/a.yaml":          "path: /srv/a\nid: zzz\ndefaults: {pids: 7}\n",
		"repos.d/.hidden.yaml":    "nonsense",
		"repos.d/backup.yaml~":    "nonsense",
		"repos.d/README":          "nonsense",
		"principals.d/ci.yaml":    "name: ci\ntoken_sha256: '" + hash1 + "'\n",
		"principals.d/other.json": "nonsense",
	} {
		write(t, filepath.Join(dir, name), content)
	}
	f, err := OpenFront(Source{Path: main})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := f.Load()
	var ids []string
	for _, r := range c.Repos {
		ids = append(ids, r.ID)
	}
	if err != nil || !reflect.DeepEqual(ids, []string{"m", "zzz", "b"}) || c.Repos[1].Defaults.PIDs != 7 || len(c.Principals) != 1 || c.Principals[0].Name != "ci" {
		t.Errorf("%q, %+v, %v", ids, c.Principals, err)
	}
	if files := f.Files(); !reflect.DeepEqual(files, []string{main, filepath.Join(dir, reposDir), filepath.Join(dir, principalsDir)}) {
		t.Errorf("files %q", files)
	}
	if err := os.Remove(main); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadFront(Source{Path: main}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file with entry files beside it: %v", err)
	}
	var wrong strict.Errors
	if _, err := LoadFront(Source{Path: main, Optional: true}); !errors.As(err, &wrong) || len(wrong) != 1 || !strings.Contains(err.Error(), "b.yaml:2:10: unknown profile `p`") {
		t.Errorf("without the file: %v", err)
	}
}

// TestEntriesPrecedence: the list of a file with its entry files replaces that of an earlier file with its own.
func TestEntriesPrecedence(t *testing.T) {
	operator := files("version: 1\nrepos: [{path: /a}]\nprincipals: [{name: x, token_sha256: '"+hash1+"'}]\n", inRepos("b.yaml", "path: /b\n"))
	for _, tt := range []struct {
		name string
		user Files
		want string
	}{
		{"nothing", files("version: 1\n"), "a b"},
		{"a file", files("", inRepos("c.yaml", "path: /c\n")), "c"},
		{"a list", files("version: 1\nrepos: [{path: /c}]\n"), "c"},
		{"both", files("version: 1\nrepos: [{path: /c}]\n", inRepos("d.yaml", "path: /d\n")), "c d"},
		{"an empty list", files("version: 1\nrepos: []\n"), ""},
		{"the same again", files("", inRepos("b.yaml", "path: /b\n")), "b"},
	} {
		tt.user.User = true
		c, err := parse([]Files{operator, tt.user}, lookup)
		var ids []string
		for _, r := range c.Repos {
			ids = append(ids, r.ID)
		}
		if got := strings.Join(ids, " "); err != nil || got != tt.want || len(c.Principals) != 1 {
			t.Errorf("%s: %q, %v, want %q", tt.name, got, err, tt.want)
		}
	}
}

// TestEntryErrors: a mistake in an entry file is reported with its place, and nothing is used.
func TestEntryErrors(t *testing.T) {
	const head = "version: 1\n"
	ci := func(name string) string { return "name: " + name + "\ntoken_sha256: '" + hash1 + "'\n" }
	for _, tt := range []struct{ name, main, repo, want string }{
		{"unknown key", head, "path: /x\nownr: 1\n", "/c/repos.d/r.yaml:2:1: unknown key `ownr`: did you mean `owner`?"},
		{"a whole configuration", head, "version: 1\nrepos: []\n", "/c/repos.d/r.yaml:1:1: unknown key `version`: must be one of path, id, users, owner, profile, workspace, protect, defaults, ceilings, network, env, runtimes\n" +
			"/c/repos.d/r.yaml:1:1: missing `path` of a repository\n/c/repos.d/r.yaml:2:1: unknown key `repos`: must be one of path, id, users, owner, profile, workspace, protect, defaults, ceilings, network, env, runtimes"},
		{"a list", head, "- path: /x\n", "/c/repos.d/r.yaml:1:1: the file: must be a mapping (`key: value`), got a list"},
		{"empty", head, "", "/c/repos.d/r.yaml: the file is empty"},
		{"two documents", head, "path: /x\n---\npath: /y\n", "/c/repos.d/r.yaml:2:1: a file must have one document, got a second one"},
		{"syntax", head, "path: [\n", "/c/repos.d/r.yaml:1: did not find expected node content"},
		{"above a ceiling", head + "ceilings: {pids: 8}\n", "path: /x\ndefaults: {pids: 9}\n", "/c/repos.d/r.yaml:2:18: `pids`: 9 is above the ceiling of 8"},
		{"same path", head + "repos: [{path: /x}]\n", "path: /x\nid: y\n", "/c/repos.d/r.yaml:1:1: duplicate repository \"/x\", first at /c/f:2:9"},
		{"same id", head + "repos: [{path: /x}]\n", "path: /y\nid: x\n", "/c/repos.d/r.yaml:1:1: duplicate id \"x\", first at /c/f:2:9: give \"/x\" or \"/y\" another `id`"},
		{"inside", head + "repos: [{path: /x}]\n", "path: /x/y\n", "/c/repos.d/r.yaml:1:1: repository \"/x/y\" overlaps \"/x\" at /c/f:2:9: jobs in one could replace the other"},
		{"around", head + "repos: [{path: /x/y}]\n", "path: /x\n", "/c/repos.d/r.yaml:1:1: repository \"/x\" overlaps \"/x/y\" at /c/f:2:9: jobs in one could replace the other"},
	} {
		c, err := parse([]Files{files(tt.main, inRepos("r.yaml", tt.repo))}, lookup)
		if err == nil || err.Error() != tt.want || !reflect.DeepEqual(c, Config{}) {
			t.Errorf("%s: got  %v\nwant %s", tt.name, err, tt.want)
		}
	}
	both := files("", inRepos("a.yaml", "path: /x\n"), inRepos("b.yaml", "path: /x\n"))
	if _, err := parse([]Files{both}, lookup); err == nil || err.Error() != "/c/repos.d/b.yaml:1:1: duplicate repository \"/x\", first at /c/repos.d/a.yaml:1:1" {
		t.Errorf("two files: %v", err)
	}
	both = Files{Principals: []File{{"a", []byte(ci("a"))}, {"b", []byte(ci("b"))}, {"c", []byte(strings.ReplaceAll(ci("a"), hash1, hash2))}}}
	want := "b:1:1: principal \"b\" has the token of \"a\" at a:1:1\nc:1:1: duplicate principal \"a\", first at a:1:1"
	if _, err := parse([]Files{both}, lookup); err == nil || err.Error() != want {
		t.Errorf("principals: %v", err)
	}
	if c, err := parse([]Files{files("version: 1\nrepos: [{path: /x}, {path: /x/y}]\n")}, lookup); err != nil || len(c.Repos) != 2 {
		t.Errorf("repositories of one list that overlap, which the supervisor reports: %v", err)
	}
}

// TestEntriesBounds: what is not a small regular file is refused, without blocking, and so are too many files.
func TestEntriesBounds(t *testing.T) {
	dir := t.TempDir()
	main, repos := filepath.Join(dir, "config.yaml"), filepath.Join(dir, reposDir)
	file := filepath.Join(repos, "r.yaml")
	many := func(n int, content string) func() error {
		return func() error {
			for i := range n {
				if err := os.WriteFile(filepath.Join(repos, fmt.Sprintf("r%d.yaml", i)), fmt.Appendf(nil, "path: /srv/%d\n%s", i, content), 0o600); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for _, tt := range []struct {
		name string
		make func() error
		want string // DIR and FILE stand for the paths; "" accepts it
	}{
		{"a file", func() error { return os.WriteFile(file, []byte("path: /srv/x\n"), 0o600) }, ""},
		{"a FIFO", func() error { return syscall.Mkfifo(file, 0o600) }, "FILE is not a regular file"},
		{"a directory", func() error { return os.Mkdir(file, 0o700) }, "FILE is not a regular file"},
		{"a link", func() error { return os.Symlink(main, file) }, "FILE is a symbolic link\nhint: put the file itself there"},
		{"a dangling link", func() error { return os.Symlink("nowhere", file) }, "FILE is a symbolic link\nhint: put the file itself there"},
		{"a device", func() error { return os.Symlink("/dev/zero", file) }, "FILE is a symbolic link\nhint: put the file itself there"},
		{"a large file", func() error { return os.WriteFile(file, make([]byte, maxEntrySize+1), 0o600) }, "FILE has 65537 bytes, more than 65536"},
		{"a name with an escape", func() error { return os.Symlink("x", filepath.Join(repos, "\x1b[2J.yaml")) }, "DIR/\\x1b[2J.yaml is a symbolic link\nhint: put the file itself there"},
		{"as many as there may be", many(maxEntries, ""), ""},
		{"too many", many(maxEntries+1, ""), "DIR has more than 1024 files"},
		{"too much", many(70, "# "+strings.Repeat("x", 64000)), "the files in DIR have more than 4194304 bytes"},
		{"another writes", func() error {
			return errors.Join(os.WriteFile(file, []byte("path: /srv/x\n"), 0o600), os.Chmod(file, 0o602))
		}, "FILE can be written by everybody (mode 0602)\nhint: chmod o-w FILE"},
		{"another adds", func() error { return os.Chmod(repos, 0o707) }, "DIR can be written by everybody (mode 0707)\nhint: chmod o-w DIR"},
		{"a link to a directory", func() error { return errors.Join(os.Remove(repos), os.Symlink(t.TempDir(), repos)) }, "DIR is not a directory"},
		{"no directory", func() error { return errors.Join(os.Remove(repos), os.WriteFile(repos, nil, 0o600)) }, "DIR is not a directory"},
	} {
		write(t, main, "version: 1\n")
		if err := errors.Join(os.RemoveAll(repos), os.Mkdir(repos, 0o700), tt.make()); err != nil {
			t.Fatal(err)
		}
		_, err := Load(main, LoadOptions{Links: true})
		want := strings.NewReplacer("FILE", file, "DIR", repos).Replace(tt.want)
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%s: got  %v\nwant %s", tt.name, err, want)
		}
	}
}

// TestRenameNew: both ways to give a file a name refuse one that exists.
func TestRenameNew(t *testing.T) {
	for name, rename := range map[string]func(at int, from, to string) error{"rename": renameNew, "link": linkNew} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "from"), "new")
		write(t, filepath.Join(dir, "old"), "old")
		d, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if err := rename(int(d.Fd()), "from", "old"); !errors.Is(err, os.ErrExist) || contentOf(t, filepath.Join(dir, "old")) != "old" {
			t.Errorf("%s to a name that exists: %v", name, err)
		}
		if err := rename(int(d.Fd()), "from", "to"); err != nil || namesIn(t, dir) != "old to" || contentOf(t, filepath.Join(dir, "to")) != "new" {
			t.Errorf("%s: %v, %s", name, err, namesIn(t, dir))
		}
	}
}

// TestUpdateEntries: entry files are created and removed, never replaced, and nothing else is.
func TestUpdateEntries(t *testing.T) {
	main := filepath.Join(t.TempDir(), "new", "config.yaml")
	repos := filepath.Join(filepath.Dir(main), reposDir)
	user := LoadOptions{User: true, Own: true, Links: true}
	do := func(name string, content []byte) error {
		return Update(main, user, func(Files) (Change, error) { return Change{Name: name, Content: content}, nil })
	}
	file := filepath.Join(repos, "x.yaml")
	if err := do(file, []byte("path: /x\n")); err != nil || contentOf(t, file) != "path: /x\n" || namesIn(t, repos) != "x.yaml" {
		t.Errorf("created: %v, %s", err, namesIn(t, repos))
	}
	for path, want := range map[string]os.FileMode{file: 0o600, repos: os.ModeDir | 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	write(t, filepath.Join(repos, "README"), "mine")
	if err := os.Chmod(repos, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		file: []byte("path: /y\n"), filepath.Join(repos, "README"): nil, filepath.Join(repos, "none.yaml"): nil,
		filepath.Join(repos, ".x.yaml"): []byte("x"), filepath.Join(repos, "x"): []byte("x"), filepath.Join(repos, "..", "x.yaml"): []byte("x"),
		filepath.Join(repos, "y", "x.yaml"): []byte("x"), filepath.Join(t.TempDir(), reposDir, "z.yaml"): []byte("x"), "/etc/passwd": nil,
		repos + "/../repos.d/../../x.yaml": []byte("x"), filepath.Join(repos, "large.yaml"): make([]byte, maxEntrySize+1),
	} {
		if err := do(name, content); err == nil {
			t.Errorf("%s: changed", name)
		}
	}
	if got := namesIn(t, repos); got != "README x.yaml" || contentOf(t, file) != "path: /x\n" {
		t.Errorf("there are %s, x.yaml is %q", got, contentOf(t, file))
	}
	// A file that another program creates meanwhile stays.
	theirs := filepath.Join(repos, "y.yaml")
	err := Update(main, user, func(Files) (Change, error) {
		return Change{Name: theirs, Content: []byte("path: /y\n")}, os.WriteFile(theirs, []byte("path: /theirs\n"), 0o600)
	})
	if !errors.Is(err, os.ErrExist) || contentOf(t, theirs) != "path: /theirs\n" || namesIn(t, repos) != "README x.yaml y.yaml" {
		t.Errorf("meanwhile: %v, %s", err, namesIn(t, repos))
	}
	if err := do(file, nil); err != nil || namesIn(t, repos) != "README y.yaml" {
		t.Errorf("removed: %v, %s", err, namesIn(t, repos))
	}
	// A directory that is a link is not written to.
	if err := errors.Join(os.RemoveAll(repos), os.Symlink(t.TempDir(), repos)); err != nil {
		t.Fatal(err)
	}
	if err := do(file, []byte("path: /x\n")); err == nil || !strings.Contains(err.Error(), "is not a directory") {
		t.Errorf("through a link: %v", err)
	}
}
