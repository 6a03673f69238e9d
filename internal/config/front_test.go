package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"corral/internal/config/strict"
	"corral/internal/test/sandboxtest"
	"corral/job"
)

func TestFrontSources(t *testing.T) {
	system := Source{Path: DefaultPath, Optional: true, Options: LoadOptions{Trusted: true}}
	user := func(path string) Source {
		return Source{Path: path, Optional: true, Options: LoadOptions{Own: true, Links: true, User: true}}
	}
	needed := func(s Source) Source {
		s.Optional = false
		return s
	}
	named := Source{Path: "/x/c.yaml", Options: LoadOptions{Links: true}}
	for _, tt := range []struct {
		name, xdg, home, file string
		root                  bool
		want                  []Source
	}{
		{"home", "", "/home/ada", "", false, []Source{system, user("/home/ada/.config/corral/config.yaml")}},
		{"XDG", "/cfg", "/home/ada", "", false, []Source{system, user("/cfg/corral/config.yaml")}},
		{"XDG, relative", "cfg", "/home/ada", "", false, []Source{system, user("/home/ada/.config/corral/config.yaml")}},
		{"no home", "", "", "", false, []Source{system}},
		{"named", "/cfg", "", "/x/c.yaml", false, []Source{system, user("/cfg/corral/config.yaml"), named}},
		{"the user's, named", "/cfg", "", "/cfg/corral/config.yaml", false, []Source{system, needed(user("/cfg/corral/config.yaml"))}},
		{"the operator's, named", "/cfg", "", DefaultPath, false, []Source{needed(system), user("/cfg/corral/config.yaml")}},
		{"root", "/cfg", "/root", "", true, []Source{system}},
		{"root, named", "/cfg", "/root", "/x/c.yaml", true, []Source{system, {Path: "/x/c.yaml"}}},
	} {
		getenv := func(name string) string { return map[string]string{"XDG_CONFIG_HOME": tt.xdg, "HOME": tt.home}[name] }
		if got := frontSources(getenv, tt.file, tt.root); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestNamedAs: only the file that the command line names is opened with somebody's rights.
func TestNamedAs(t *testing.T) {
	none := func(string) string { return "" }
	refused := errors.New("not readable with these rights")
	as := func(func() error) error { return refused }
	sources := FrontSources(none, "/x/c.yaml", as)
	if len(sources) != 2 || sources[0].As != nil || sources[1].As == nil {
		t.Fatalf("%+v", sources)
	}
	if f, err := OpenFront(sources[1]); !errors.Is(err, refused) {
		t.Errorf("%+v, %v", f, err)
	}
	for _, s := range FrontSources(none, DefaultPath, as) {
		if s.As != nil {
			t.Errorf("the operator's file is opened with the rights of another: %+v", s)
		}
	}
}

// TestPrecedence: a later file takes precedence, key by key in mappings, as a whole for every other value.
func TestPrecedence(t *testing.T) {
	const first = `version: 1
repos: [{path: /srv/a}, {path: /srv/b}]
max_jobs: 7
defaults: {memory: 1GiB, pids: 100}
ceilings: {memory: 8GiB}
profiles: {p: {syscalls: strict, defaults: {pids: 50}}, q: {}}
runtime: {enabled: false, runtimes: [python, shell], max_duration: 30s, env: {allow: [A]}, runtime_env: {go: {A: "1", B: "1"}}, tool_network: {run: npm}}
principals: [{name: a, token_sha256: "` + hash1 + `"}]
`
	load := func(files ...string) (Config, error) {
		var all []Files
		for i, content := range files {
			all = append(all, Files{User: i > 0, Main: &File{string(rune('f' + i)), []byte(content)}})
		}
		return parse(all, lookup)
	}
	base, err := load(first)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, second string
		change       func(c *Config)
	}{
		{"nothing", "", func(*Config) {}},
		{"a list", "repos: [{path: /srv/c}]", func(c *Config) { c.Repos = []Repo{{ID: "c", Path: "/srv/c"}} }},
		{"an empty list", "repos: []\nprincipals: []", func(c *Config) { c.Repos, c.Principals = nil, nil }},
		{"a key of a mapping", "runtime: {max_duration: 10s}", func(c *Config) { c.Runtime.MaxDuration = 10 * time.Second }},
		{"a list in a mapping", "runtime: {runtimes: [go], env: {allow: [B]}}", func(c *Config) {
			c.Runtime.Runtimes, c.Runtime.Env = []string{"go"}, []string{"B"}
		}},
		{"a limit", "defaults: {pids: 9}", func(c *Config) { c.Defaults.PIDs = 9 }},
		{"a variable", "runtime: {runtime_env: {go: {A: x}, c: {C: y}}}", func(c *Config) {
			c.Runtime.RuntimeEnv = map[string]map[string]string{"go": {"A": "x", "B": "1"}, "c": {"C": "y"}}
		}},
		{"a tool", "runtime: {tool_network: {sandbox_exec: none}}", func(c *Config) {
			c.Runtime.ToolNetwork = map[string]string{"run": "npm", "sandbox_exec": "none"}
		}},
		{"a profile's key", "profiles: {p: {defaults: {memory: 1GiB}}}", func(c *Config) {
			c.Profiles = map[string]Profile{"p": {Syscalls: "strict", Defaults: job.Limits{Memory: 1 << 30, PIDs: 50}}, "q": {}}
		}},
		{"a lower ceiling", "ceilings: {memory: 512MiB}", func(c *Config) { c.Ceilings.Memory, c.Defaults.Memory = 512<<20, 512<<20 }},
		{"an earlier file's profile", "repos: [{path: /x, profile: q}]", func(c *Config) {
			c.Repos = []Repo{{ID: "x", Path: "/x", Profile: "q"}}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want, err := load(first)
			if err != nil {
				t.Fatal(err)
			}
			tt.change(&want)
			got, err := load(first, "version: 1\n"+tt.second)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
			}
		})
	}
	if again, err := load(first); err != nil || !reflect.DeepEqual(again, base) {
		t.Errorf("the result shares memory with another: %+v, %v", again, err)
	}
}

// TestFrontErrors: all files are checked, each error names its file, and errors are in the order of the files.
func TestFrontErrors(t *testing.T) {
	_, err := parse([]Files{
		{Main: &File{"a", []byte("version: 1\nmax_jbs: 1\nrepos: [{path: /x, profile: nowhere}]\n")}},
		{Main: &File{"b", []byte("max_jails: 3\naudit: {}\ntoolchains: [/x]\n")}, User: true},
		{Main: &File{"c", []byte("version: 1\ndefaults: {memory: 2GiB}\nceilings: {memory: 1GiB}\n")}},
	}, lookup)
	want := []string{
		"a:2:1: unknown key `max_jbs`: did you mean `max_jobs`?",
		"a:3:29: unknown profile `nowhere`: must be one of default, strict",
		"b:1:1: missing `version`: must be `version: 1`",
		"b:1:12: `max_jails` is for the supervisor, which reads /etc/corral/config.yaml and no user's file",
		"b:2:8: `audit` is for the supervisor, which reads /etc/corral/config.yaml and no user's file",
		"b:3:13: `toolchains` is for the supervisor, which reads /etc/corral/config.yaml and no user's file",
		"c:2:20: `memory`: 2GiB is above the ceiling of 1GiB",
	}
	if err == nil || err.Error() != strings.Join(want, "\n") {
		t.Errorf("got\n%v\nwant\n%s", err, strings.Join(want, "\n"))
	}
}

func TestLoadFront(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(
		os.WriteFile(path("a"), []byte("version: 1\nruntime: {queue_length: 3, max_concurrent_jobs: 2}\n"), 0o600),
		os.WriteFile(path("b"), []byte("version: 1\nruntime: {queue_length: 4}\n"), 0o600),
		os.WriteFile(path("wrong"), []byte("version: 1\nrepo: []\n"), 0o600),
		os.Symlink("b", path("link")), os.Symlink("nothing", path("dangling")),
	); err != nil {
		t.Fatal(err)
	}
	source := func(name string, optional bool) Source {
		return Source{Path: path(name), Optional: optional, Options: LoadOptions{Links: true}}
	}
	f, err := OpenFront(source("a", true), source("absent", true), source("link", true), source("dangling", true))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if files := f.Files(); !reflect.DeepEqual(files, []string{path("a"), path("link")}) {
		t.Errorf("files %q", files)
	}
	want := Default()
	want.Runtime.QueueLength, want.Runtime.MaxConcurrentJobs = 4, 2
	if c, err := f.Load(); err != nil || !reflect.DeepEqual(c, want) {
		t.Errorf("got %+v, %v; want %+v", c, err, want)
	}
	if c, err := LoadFront(source("absent", true)); err != nil || !reflect.DeepEqual(c, Default()) {
		t.Errorf("without a file: %+v, %v", c, err)
	}
	if _, err := LoadFront(source("a", false), source("absent", false)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file that is not optional: %v", err)
	}
	var wrong strict.Errors
	if _, err := LoadFront(source("a", true), source("wrong", true)); !errors.As(err, &wrong) || wrong[0].File != path("wrong") {
		t.Errorf("one file has a mistake: %v", err)
	}
	if _, err := LoadFront(Source{Path: path("link"), Optional: true}); err == nil || !strings.Contains(err.Error(), "is a symbolic link") {
		t.Errorf("a forbidden link: %v", err)
	}
}

// TestOwn changes one permission of a user's file at a time.
func TestOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c")
	if err := os.WriteFile(path, []byte("version: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func(mode os.FileMode, owner int) string {
		if err := errors.Join(os.Chmod(path, mode), os.Chown(path, owner, -1)); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path, LoadOptions{Own: true}); err != nil {
			return strings.ReplaceAll(err.Error(), path, "FILE")
		}
		return ""
	}
	for mode, want := range map[os.FileMode]string{
		0o600: "", 0o644: "", 0o664: "", 0o666: "FILE can be written by everybody (mode 0666)\nhint: chmod o-w FILE",
	} {
		if got := load(mode, os.Geteuid()); got != want {
			t.Errorf("%04o: %q, want %q", mode, got, want)
		}
	}
	sandboxtest.Require(t, sandboxtest.Root)
	if got, want := load(0o644, 1000), "FILE belongs to user 1000: what governs your jobs must be yours\nhint: chown 0 FILE"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := usersOwn(path, info, 1000); err != nil {
		t.Errorf("one's own: %v", err)
	}
	info.Sys().(*syscall.Stat_t).Uid = 0
	if err := usersOwn(path, info, 1000); err != nil {
		t.Errorf("root's: %v", err)
	}
}
