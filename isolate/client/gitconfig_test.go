package client

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// gitHome makes a home directory with files, by their paths in it, and a repository in it, and returns both.
func gitHome(t *testing.T, files map[string]string) (home, repo string) {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Program("git"))
	home = t.TempDir()
	repo = filepath.Join(home, "src/repo")
	for _, name := range []string{"XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL"} {
		t.Setenv(name, "")
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GIT_CONFIG_SYSTEM", filepath.Join(home, "none"))
	for name, text := range files {
		writeFile(t, filepath.Join(home, name), strings.ReplaceAll(text, "$HOME", home))
	}
	inGit(t, home, nil, "init", "-q", repo)
	return home, repo
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// inGit runs git in dir without a configuration of the user, and returns what it prints.
func inGit(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1"}, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out) + err.Error() + "\n"
	}
	return string(out)
}

// settingsOf returns what jobs in repo get of the user with a home directory.
func settingsOf(home, repo string) []job.File {
	s := newSettings()
	s.readUser(home, repo)
	return s.files(repo)
}

// generated writes what jobs in repo get where git finds it, and returns the environment for that, and the configuration.
func generated(t *testing.T, home, repo string) (env []string, config string) {
	t.Helper()
	dir := t.TempDir()
	for _, f := range settingsOf(home, repo) {
		text := strings.ReplaceAll(f.Content, gitDir, dir)
		writeFile(t, filepath.Join(dir, filepath.Base(f.Path)), text)
		if filepath.Base(f.Path) == "config" {
			config = text
		}
	}
	return []string{"GIT_CONFIG_NOSYSTEM=0", "GIT_CONFIG_SYSTEM=" + filepath.Join(dir, "config")}, config
}

// TestGitSettings checks that git with the generated configuration has the settings of the user's own that say who commits and how,
// also those of an include that applies to the repository, and none that names a program, a key, a file or a server.
func TestGitSettings(t *testing.T) {
	const include = "[includeIf \"gitdir:~/src/\"]\n\tpath = work\n[include]\n\tpath = missing\n"
	for name, tt := range map[string]struct{ more, email string }{
		"plain": {"", "ada@example.org"}, "with includes": {include, "ada@work.example"},
	} {
		t.Run(name, func(t *testing.T) { checkGitSettings(t, tt.more, tt.email) })
	}
}

// checkGitSettings checks the settings of a configuration that ends with more.
func checkGitSettings(t *testing.T, more, email string) {
	t.Helper()
	home, repo := gitHome(t, map[string]string{
		".gitconfig": `[user]
	name = Ada \"the \\ first\"
	email = ada@example.org
	signingkey = SECRET
[init]
	defaultBranch = trunk
	templateDir = /SECRET
[core]
	autocrlf = input
	editor = SECRET
	pager = SECRET
	hooksPath = /SECRET
	fsmonitor = SECRET
	sshCommand = SECRET
[alias]
	x = !SECRET
[credential]
	helper = SECRET
[commit]
	gpgsign = true
	template = ~/SECRET
[url "https://SECRET@example.org/"]
	insteadOf = https://example.org/
[http]
	proxy = http://SECRET
	extraHeader = SECRET
[diff "x"]
	textconv = SECRET
[merge]
	conflictStyle
	tool = SECRET
[pull]
	rebase
` + more,
		"work": "[user]\n\temail = ada@work.example\n",
	})
	env, config := generated(t, home, repo)
	if strings.Contains(config, "SECRET") || strings.Contains(config, "gpgsign") {
		t.Errorf("a setting that is not for jobs:\n%s", config)
	}
	for key, want := range map[string]string{
		"user.name": `Ada "the \ first"`, "user.email": email, "init.defaultBranch": "trunk", "core.autocrlf": "input",
		"merge.conflictStyle": "true", "pull.rebase": "true",
	} {
		if got := inGit(t, repo, env, "config", key); got != want+"\n" {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	inGit(t, repo, nil, "config", "user.name", "of the repository")
	if got := inGit(t, repo, env, "config", "user.name"); got != "of the repository\n" {
		t.Errorf("the repository's own name does not win: %q", got)
	}
}

// TestGitValues: values with control characters or of more than maxGitValue bytes do not count, nor does what a repository configures.
func TestGitValues(t *testing.T) {
	s := newSettings()
	s.read("global\x00user.name\nAda\x00global\x00user.name\na\x1b[2J\x00system\x00user.email\n"+strings.Repeat("x", maxGitValue+1)+"\x00"+
		"local\x00user.email\na@example.org\x00command\x00core.autocrlf\x00", "/home/ada")
	if want := "[user]\n\tname = \"Ada\"\n"; s.config != want {
		t.Errorf("%q, want %q", s.config, want)
	}
}

// TestGitFIFO: a FIFO that somebody has open is no configuration, and nobody waits for what is written to it.
func TestGitFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if text, ok := readRegular(path, maxGitOutput); ok {
		t.Errorf("%q", text)
	}
}

// TestGitPatterns checks that excludes and attributes of the user apply, at their usual places and at others, and that no other file
// is read in their place, whatever a configuration names.
func TestGitPatterns(t *testing.T) {
	const key = "id_ed25519"
	for name, c := range map[string]struct {
		files   map[string]string
		link    string // the file in the home directory that is a link to key
		ignored bool
	}{
		"usual places": {map[string]string{".config/git/ignore": ".env.local\n", ".config/git/attributes": "*.x binary\n"}, "", true},
		"named":        {map[string]string{".gitconfig": "[user]\nname = Ada\n[core]\nexcludesFile = ~/.gitignore_global\n", ".gitignore_global": ".env.local\n"}, "", true},
		"a key":        {map[string]string{".gitconfig": "[core]\nexcludesFile = ~/" + key + "\n", key: ".env.local\n"}, "", false},
		"a link":       {map[string]string{".gitconfig": "[core]\nexcludesFile = ~/.gitignore\n", key: ".env.local\n"}, ".gitignore", false},
		"too large":    {map[string]string{".config/git/ignore": ".env.local\n" + strings.Repeat("#\n", maxGitPattern/2)}, "", false},
		"a directory":  {map[string]string{".config/git/ignore/x": ""}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			home, repo := gitHome(t, c.files)
			if c.link != "" {
				if err := os.Symlink(key, filepath.Join(home, c.link)); err != nil {
					t.Fatal(err)
				}
			}
			env, _ := generated(t, home, repo)
			writeFile(t, filepath.Join(repo, ".env.local"), "TOKEN=1\n")
			inGit(t, repo, env, "add", "-A")
			if got := inGit(t, repo, env, "ls-files"); (got == "") != c.ignored {
				t.Errorf("files added: %q", got)
			}
			if c.files[".config/git/attributes"] != "" {
				if got := inGit(t, repo, env, "check-attr", "binary", "a.x"); got != "a.x: binary: set\n" {
					t.Errorf("%q", got)
				}
			}
		})
	}
}

// TestGitPatternsRace: a link that appears after the path of a pattern file was resolved and checked is not followed.
func TestGitPatternsRace(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "token"), []byte("secret"), 0o600), os.Symlink("token", filepath.Join(dir, "ignore")),
		os.Mkdir(filepath.Join(dir, "real"), 0o700), os.Symlink("real", filepath.Join(dir, "link")),
		os.WriteFile(filepath.Join(dir, "real/ignore"), []byte("*.o"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"ignore": "", "link/ignore": "", "real/ignore": "*.o"} {
		if got, _ := readResolved(filepath.Join(dir, path), maxGitPattern); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// TestGitFilters checks that a filter of the user's is never left out without a word, and that jobs get no command of it but those
// of packages.
func TestGitFilters(t *testing.T) {
	home, repo := gitHome(t, map[string]string{".gitconfig": `[filter "lfs"]
	clean = git-lfs clean -- %f
	smudge = git-lfs smudge -- %f
	process = git-lfs filter-process
	required = true
[filter "strip"]
	clean = /SECRET/strip
[filter "crypt"]
	clean = SECRET
	process = SECRET
	required
[filter "a b;c"]
	clean = SECRET
`})
	env, config := generated(t, home, repo)
	if strings.Contains(config, "SECRET") {
		t.Errorf("a command that is not for jobs:\n%s", config)
	}
	if got := inGit(t, repo, env, "config", "--get-regexp", `^filter\.lfs\.`); got != `filter.lfs.clean git-lfs clean -- %f
filter.lfs.smudge git-lfs smudge -- %f
filter.lfs.process git-lfs filter-process
filter.lfs.required true
` {
		t.Errorf("%s", got)
	}
	writeFile(t, filepath.Join(repo, ".gitattributes"), "*.s filter=strip\n*.c filter=crypt\n")
	for _, name := range []string{"1.s", "2.s", "3.c"} {
		writeFile(t, filepath.Join(repo, name), "text of "+name+"\n")
	}
	got := inGit(t, repo, env, "add", "1.s", "2.s")
	if n := strings.Count(got, "jobs do not run the filter strip"); n != 1 {
		t.Errorf("%d hints, want 1: %q", n, got)
	}
	if got := inGit(t, repo, env, "show", ":1.s"); got != "text of 1.s\n" {
		t.Errorf("the file: %q", got)
	}
	if got := inGit(t, repo, env, "add", "3.c"); !strings.Contains(got, "jobs do not run the filter crypt") || !strings.Contains(got, "exit status") {
		t.Errorf("a required filter: %q", got)
	}
}

// TestGitSettingsOff checks who gets no configuration.
func TestGitSettingsOff(t *testing.T) {
	const identity = "[user]\n\tname = Ada\n"
	home, repo := gitHome(t, map[string]string{".gitconfig": identity})
	if _, config := generated(t, home, repo); !strings.Contains(config, "Ada") {
		t.Fatalf("%q", config)
	}
	writeFile(t, filepath.Join(home, ".gitconfig"), identity+"[corral]\n\tjobs = false\n")
	if list := settingsOf(home, ""); list != nil {
		t.Errorf("%s = false: %v", gitOff, list)
	}
	if list := settingsOf(t.TempDir(), ""); list != nil {
		t.Errorf("without a configuration: %v", list)
	}
	for _, spec := range []job.Spec{
		{Env: []string{"GIT_CONFIG_NOSYSTEM=1"}},
		{Env: []string{"GIT_CONFIG_SYSTEM="}},
		{Workspace: job.NoRepo},
		{Tool: job.ToolEdit},
		{Limits: job.Limits{Tmp: 1 << 16}},
		{Limits: job.Limits{TmpInodes: 16}},
	} {
		if files, env := addGitSettings(spec); files != nil || !slices.Equal(env, spec.Env) {
			t.Errorf("%+v: %v, %v", spec, files, env)
		}
	}
}

// TestGitTraces checks that reading a configuration writes no file, although git would.
func TestGitTraces(t *testing.T) {
	home, repo := gitHome(t, map[string]string{
		".gitconfig": "[user]\n\tname = Ada\n[trace2]\n\tnormalTarget = $HOME/one\n\teventTarget = $HOME/two\n\tperfTarget = $HOME/three\n",
	})
	if _, config := generated(t, home, repo); !strings.Contains(config, "Ada") {
		t.Fatalf("%q", config)
	}
	for _, name := range []string{"one", "two", "three"} {
		if _, err := os.Lstat(filepath.Join(home, name)); err == nil {
			t.Errorf("git wrote %s", name)
		}
	}
}

// TestGitWorktrees checks that gc does not prune a worktree that the job does not see.
func TestGitWorktrees(t *testing.T) {
	home, repo := gitHome(t, nil)
	wt := filepath.Join(home, "wt")
	identity := []string{"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a"}
	if list := settingsOf(home, repo); list != nil {
		t.Errorf("without worktrees: %v", list)
	}
	inGit(t, repo, identity, "commit", "--allow-empty", "-qm", "x")
	inGit(t, repo, nil, "worktree", "add", "-q", wt)
	entry := filepath.Join(repo, ".git/worktrees/wt")
	for _, dir := range []string{repo, wt} {
		env, config := generated(t, home, dir)
		if err := os.Rename(wt, wt+"-hidden"); err != nil {
			t.Fatal(err)
		}
		year := time.Now().AddDate(-1, 0, 0)
		for _, name := range []string{"gitdir", "index"} {
			if err := os.Chtimes(filepath.Join(entry, name), year, year); err != nil {
				t.Fatal(err)
			}
		}
		inGit(t, repo, env, "gc", "-q")
		if _, err := os.Stat(entry); err != nil {
			t.Errorf("the entry: %v; configuration %q", err, config)
		}
		if err := os.Rename(wt+"-hidden", wt); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(wt, wt+"-hidden"); err != nil {
		t.Fatal(err)
	}
	if inGit(t, repo, nil, "gc", "-q"); pathExists(entry) {
		t.Error("without the configuration git keeps it, too")
	}
}

func pathExists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
