package scan

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// kept returns the paths to protect, each as its hold and its path, sorted. It fails the test if a path precedes its
// parent.
func kept(t *testing.T, s *Scanner, all bool) []string {
	t.Helper()
	list, err := s.Keep(all)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for i, k := range list {
		words = append(words, string(k.Hold)+" "+k.Path)
		if slices.ContainsFunc(list[i:], func(l Kept) bool { return strings.HasPrefix(k.Path, l.Path+"/") }) {
			t.Errorf("%s comes before its parent directory", k.Path)
		}
	}
	slices.Sort(words)
	return words
}

// without removes the entries that git init creates, which every test has.
func without(list []string) []string {
	usual := []string{"p .git", "r .git", "r .git/config", "r .git/hooks", "r .git/branches"}
	return slices.DeleteFunc(list, func(s string) bool { return slices.Contains(usual, s) })
}

// TestKeep: Keep lists the paths to protect, for hooks only and for git directories as a whole.
func TestKeep(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("git"))
	for _, tc := range []struct {
		name  string
		made  string
		hooks []string
		all   []string // nil: the same as hooks
	}{
		{"nothing", "mkdir src; echo > src/x.go; git add .; git commit -qm x; git tag x", nil, nil},
		{"settings", "mkdir .vscode .claude .codex .agents; echo > .claude/x; echo > AGENTS.md; echo > .envrc; echo > x", []string{
			"r .agents", "r .claude", "r .codex", "r .envrc", "r .vscode", "r AGENTS.md",
		}, nil},
		{"settings of other directories", "mkdir -p src/.vscode src/.claude/x; echo > src/AGENTS.md; mkdir src/.envrc .npmrc", nil, nil},
		{"deeper rules", "mkdir -p .github/workflows .github/x .cargo .jj/repo; echo > .github/.envrc; echo > .github/x/.envrc; echo > .cargo/config.toml; echo > .cargo/x; echo > .jj/repo/config.toml", []string{
			"p .cargo", "p .github", "p .jj", "p .jj/repo", "r .cargo/config.toml", "r .github/workflows", "r .jj/repo/config.toml",
		}, nil},
		{"a directory on the way is a link", "mkdir x; ln -s x .github", []string{"r .github"}, nil},
		{"git directory", "mkdir -p .git/info .git/remotes; echo > .git/info/attributes; echo /x > .git/objects/info/alternates; echo > .git/config.worktree", []string{
			"p .git/info", "p .git/objects", "p .git/objects/info", "r .git/config.worktree", "r .git/info/attributes",
			"r .git/objects/info/alternates", "r .git/remotes",
		}, []string{}},
		{"modules and worktrees", "mkdir -p .git/modules/libs/x/hooks .git/worktrees/w; echo > .git/modules/libs/x/config; echo ../.. > .git/worktrees/w/commondir; echo > .git/worktrees/w/HEAD", []string{
			"p .git/modules", "p .git/modules/libs", "p .git/modules/libs/x", "p .git/worktrees", "p .git/worktrees/w",
			"r .git/modules/libs/x/config", "r .git/modules/libs/x/hooks", "r .git/worktrees/w/commondir",
		}, []string{}},
		{"nested", "git init -q a/b; echo > a/b/.envrc; echo > a/.envrc; mkdir a/b/.vscode a/b/c; echo > a/b/c/.envrc; rm -rf a/b/.git/branches", []string{
			"p a", "p a/b", "p a/b/.git", "r a/b/.envrc", "r a/b/.git/config", "r a/b/.git/hooks", "r a/b/.vscode",
		}, []string{"p a", "p a/b", "r a/b/.envrc", "r a/b/.git", "r a/b/.vscode"}},
		{"nested, a file", "mkdir -p a/b; echo gitdir: ../../x > a/b/.git; echo > a/b/.envrc", []string{
			"p a", "p a/b", "r a/b/.envrc", "r a/b/.git",
		}, nil},
		{"look-alike", "git init -q --bare a/b.git; rm -rf a/b.git/branches", []string{
			"p a", "p a/b.git", "r a/b.git/config", "r a/b.git/hooks",
		}, []string{"p a", "r a/b.git"}},
		{"the root is a look-alike", "mkdir objects refs; echo > HEAD; echo > config", []string{"r config"}, []string{
			"r HEAD", "r config", "r objects", "r refs",
		}},
		{"links", "mkdir -p docs .claude d; echo > docs/a.md; ln -s docs/a.md AGENTS.md; ln -s ../docs/a.md .claude/a; ln -s ../d .claude/d; ln -s d .codex; ln -s /etc .cursor; ln -s . .zed; ln -s nowhere .envrc", []string{
			"p docs", "r .claude", "r .codex", "r .cursor", "r .envrc", "r .zed", "r AGENTS.md", "r d", "r docs/a.md",
		}, nil},
		{"hook that is a link", "mkdir s; echo > s/h; ln -s ../../s/h .git/hooks/pre-commit", []string{"p s", "r s/h"}, nil},
		{"in one that is kept", "git init -q .claude/x; mkdir .claude/worktrees; git init -q .claude/worktrees/y", []string{"r .claude"}, nil},
		{"other case", "mkdir .VSCode; echo > Agents.MD", []string{"r .VSCode", "r Agents.MD"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			shell(t, dir, "git init -q -b main\n"+tc.made)
			s := scanner(t, dir, Bounds{})
			baseline(t, s)
			if tc.all == nil {
				tc.all = tc.hooks
			}
			for i, want := range [][]string{tc.hooks, tc.all, tc.hooks} {
				if got := without(kept(t, s, i == 1)); !slices.Equal(got, want) {
					t.Errorf("all %v:\n%q, want\n%q", i == 1, got, want)
				}
			}
		})
	}
}

// TestKeepRemembers: a change that Keep encounters is in its next list, and Changed still reports it.
func TestKeepRemembers(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("git"))
	dir := t.TempDir()
	shell(t, dir, "git init -q -b main; mkdir a; echo > .envrc")
	s := scanner(t, dir, Bounds{})
	baseline(t, s)
	kept(t, s, false)
	since := settle()
	shell(t, dir, "mkdir -p a/.git/hooks; echo > .npmrc; rm .envrc")
	want := []string{"p a", "p a/.git", "r .npmrc", "r a/.git/hooks"}
	if got := without(kept(t, s, false)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if rep := changed(t, s, since); !slices.Equal(rep.Paths, []string{".envrc", ".npmrc", "a/.git"}) {
		t.Errorf("changed: %q", rep.Paths)
	}
}

// TestKeepUnread: a directory that cannot be read is protected as a whole.
func TestKeepUnread(t *testing.T) {
	dir := t.TempDir()
	deep := strings.Repeat("d/", MaxDepth+1)
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, deep), 0o755), os.Mkdir(dir+"/closed", 0)); err != nil {
		t.Fatal(err)
	}
	s := scanner(t, dir, Bounds{})
	var got []Kept
	sandboxtest.AsNobody(t, dir, func() {
		_, err := s.Baseline()
		if err == nil {
			got, err = s.Keep(false)
		}
		if err != nil {
			t.Error(err)
		}
	})
	want := []Kept{{ReadOnly, "closed"}, {ReadOnly, strings.TrimSuffix(deep, "/")}}
	if !slices.Equal(got, want) {
		t.Errorf("%.60q, want %.60q", got, want)
	}
}

// TestKeepBounds: exceeding a bound is an error, never a shorter list.
func TestKeepBounds(t *testing.T) {
	nested := func(n int, name string) string {
		return fmt.Sprintf("seq -f '%s%%.0f/.git/hooks' %d | xargs mkdir -p", name, n)
	}
	for _, tc := range []struct {
		name, made string
		b          Bounds
		ok         bool
	}{
		{"as many", nested((MaxKept-2)/3, "d"), Bounds{}, true},
		{"paths", nested((MaxKept+2)/3, "d"), Bounds{}, false},
		{"bytes", nested(80, strings.Repeat("x", 240)), Bounds{}, false},
		{"directories", nested(100, "d"), Bounds{MaxDirs: 50}, false},
		{"entries", nested(100, "d"), Bounds{MaxEntries: 20}, false},
		{"entries, in three passes", nested(100, "d"), Bounds{MaxEntries: 200}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			shell(t, dir, tc.made)
			s := scanner(t, dir, tc.b)
			baseline(t, s)
			list, err := s.Keep(false)
			if tc.ok != (err == nil) || !tc.ok && (!errors.Is(err, ErrTooMany) || list != nil) {
				t.Errorf("%d paths, %v", len(list), err)
			}
		})
	}
}

// TestKeepGitDir: the root itself is a git directory with another name.
func TestKeepGitDir(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("git"))
	dir := t.TempDir()
	shell(t, dir, "git init -q --bare .; rm -rf branches; mkdir -p worktrees/w; echo > worktrees/w/gitdir; echo > .envrc")
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewGitDir(f, Bounds{})
	if err != nil {
		t.Fatal(err)
	}
	defer closeScanner(t, s)
	baseline(t, s)
	want := []string{"p worktrees", "p worktrees/w", "r config", "r hooks", "r worktrees/w/gitdir"}
	if got := kept(t, s, false); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	since := settle()
	shell(t, dir, "echo > hooks/pre-commit; echo > refs/heads/config")
	if rep := changed(t, s, since); !slices.Equal(rep.Paths, []string{"hooks/pre-commit"}) {
		t.Errorf("%+v", rep)
	}
}
