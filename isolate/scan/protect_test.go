package scan

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// kept returns the paths to protect, each as its hold and its path, sorted. It fails the test if a path precedes its
// parent.
func kept(t *testing.T, s *Scanner, all bool) []string {
	t.Helper()
	changed(t, s, time.Now())
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
		{"links", "mkdir -p docs .claude d e; echo > docs/a.md; ln -s docs/a.md AGENTS.md; ln -s ../docs/a.md .claude/a; ln -s ../e .claude/e; ln -s d .codex; ln -s /etc .cursor; ln -s . .zed; ln -s nowhere .envrc", []string{
			"p docs", "r .claude", "r .codex", "r .cursor", "r .envrc", "r .zed", "r AGENTS.md", "r d", "r docs/a.md", "r e",
		}, nil},
		{"absolute links", "mkdir -p a/b c; echo > a/b/f; ln -s $PWD/a/b/f .envrc; ln -s $PWD/c .claude; ln -s $PWD .codex; ln -s /nowhere .npmrc", []string{
			"p a", "p a/b", "r .claude", "r .codex", "r .envrc", "r .npmrc", "r a/b/f", "r c",
		}, nil},
		{"links that leave and come back", "mkdir -p a c; echo > a/f; ln -s ../$(basename $PWD)/a/f .envrc; ln -s ../../../../../../../../../..$PWD/c .claude; ln -s ../x/../$(basename $PWD)/a/f .npmrc", []string{
			"p a", "r .claude", "r .envrc", "r .npmrc", "r a/f", "r c",
		}, nil},
		{"links of links", "mkdir -p a b c; echo > c/f; ln -s a/l .envrc; ln -s ../b/m a/l; ln -s ../d/f b/m; ln -s c d", []string{
			"p a", "p b", "p c", "r .envrc", "r a/l", "r b/m", "r c/f", "r d",
		}, nil},
		{"a circle", "ln -s a .envrc; ln -s .envrc a", []string{"r .envrc", "r a"}, nil},
		{"a link on the way", "mkdir -p gh/workflows gh/actions gh/x; echo > gh/y; ln -s gh .github; mkdir c; echo > c/config.toml; echo > c/z; ln -s c .cargo", []string{
			"p c", "p gh", "r .cargo", "r .github", "r c/config.toml", "r gh/actions", "r gh/workflows",
		}, nil},
		{"a link on the way to the root", "mkdir workflows; ln -s . .github", []string{"r .github", "r workflows"}, nil},
		{"hooks that are a link", "mkdir tools; rmdir .git/hooks || rm -r .git/hooks; ln -s ../tools .git/hooks", []string{"r tools"}, nil},
		{"a git directory that is a link", "mv .git g; ln -s g .git; rm -rf g/branches", []string{"p g", "r g/config", "r g/hooks"}, []string{"r g"}},
		{"links in links", "mkdir -p .claude a/x b c; ln -s ../a .claude/a; ln -s ../../b a/x/b; ln -s ../c b/c; ln -s ../a c/a; ln -s ../.. .claude/up; ln -s ../a .claude/again", []string{
			"r .claude", "r a", "r b", "r c",
		}, nil},
		{"a directory by the name of a file", "mkdir d; echo > d/f; ln -s d .envrc; ln -s d/f .npmrc", []string{"p d", "r .envrc", "r .npmrc", "r d/f"}, nil},
		{"links of other directories", "mkdir -p src d; ln -s ../d src/.claude; ln -s d link", nil, nil},
		{"hook that is a link", "mkdir s; echo > s/h; ln -s ../../s/h .git/hooks/pre-commit", []string{"p s", "r s/h"}, nil},
		{"what the git configuration names", "mkdir -p h src; echo > src/fs; echo > c; git config core.hooksPath h; git config core.fsmonitor src/fs; git config include.path ../c", []string{
			"p src", "r c", "r h", "r src/fs",
		}, nil},
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

// TestKeepRemembers: what the last pass found is in the list.
func TestKeepRemembers(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("git"))
	dir := t.TempDir()
	shell(t, dir, "git init -q -b main; mkdir -p a tools; echo > .envrc; ln -s ../tools .git/tools")
	s := scanner(t, dir, Bounds{})
	baseline(t, s)
	kept(t, s, false)
	since := settle()
	shell(t, dir, "mkdir -p a/.git/hooks; echo > .npmrc; rm .envrc; rm -r .git/hooks; mv .git/tools .git/hooks")
	if rep := changed(t, s, since); !slices.Equal(rep.Paths, []string{".envrc", ".git/hooks", ".npmrc", "a/.git"}) {
		t.Errorf("changed: %q", rep.Paths)
	}
	want := []string{"p a", "p a/.git", "r .npmrc", "r a/.git/hooks", "r tools"}
	if got := without(kept(t, s, false)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	shell(t, dir, "rm .git/hooks")
	want = slices.Delete(want, 4, 5)
	if got := without(kept(t, s, false)); !slices.Equal(got, want) || len(s.linked) > 0 {
		t.Errorf("%q, want %q", got, want)
	}
}

// keptAsNobody returns what s, a scanner of dir, keeps from an unprivileged user.
func keptAsNobody(t *testing.T, dir string, s *Scanner) (got []Kept) {
	t.Helper()
	sandboxtest.AsNobody(t, dir, func() {
		_, err := s.Baseline()
		if err == nil {
			got, err = s.Keep(false)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return got
}

// TestKeepClosed: a directory on the way of a link that cannot be searched is protected as a whole.
func TestKeepClosed(t *testing.T) {
	dir := t.TempDir()
	shell(t, dir, "mkdir -p a/b/c; echo > a/b/c/f; ln -s a/b/c/f .envrc; ln -s a/b/../b/c/d/../f .npmrc; chmod 600 a/b")
	s := scanner(t, dir, Bounds{})
	got := keptAsNobody(t, dir, s)
	want := []Kept{{ReadOnly, ".envrc"}, {ReadOnly, ".npmrc"}, {Pinned, "a"}, {ReadOnly, "a/b"}}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestKeepUndecided: a link that cannot be followed within the bounds is an error, never a shorter list.
func TestKeepUndecided(t *testing.T) {
	dir := t.TempDir()
	shell(t, dir, `mkdir d; n=d; for i in 1 2 3 4 5 6 7 8 9 10; do n=$n/../d; done
		ln -s $n x0; for i in 1 2 3 4 5 6 7 8 9; do ln -s "$(for j in 1 2 3 4; do printf "x$((i-1))/../"; done)d" x$i; done; ln -s x9 .claude`)
	s := scanner(t, dir, Bounds{})
	baseline(t, s)
	if list, err := s.Keep(false); err != nil || len(list) == 0 { // more than 40 links: the path leads nowhere
		t.Errorf("%q, %v", list, err)
	}
	shell(t, dir, `rm .claude; n=d; for i in $(seq 700); do n=$n/../d; done; for i in 1 2 3 4 5 6; do ln -s $n/../y$((i+1)) y$i; done; ln -s d y7; ln -s y1 .claude`)
	if rep := changed(t, s, time.Now()); !rep.Incomplete {
		t.Errorf("%+v", rep)
	}
	if list, err := s.Keep(false); !errors.Is(err, errUndecided) || list != nil {
		t.Errorf("%q, %v", list, err)
	}
}

// TestKeepBoth: links lead from the repository to the git directory that it is a worktree of, and back.
func TestKeepBoth(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("git"))
	dir := t.TempDir()
	shell(t, dir, `git init -q --template= -b main m; cd m; git commit -q --allow-empty -m x; git worktree add -q ../w; mkdir ../w/tools ../w/scripts .git/shared
		echo > .git/shared/f; ln -s $PWD/.git/shared ../w/.claude; ln -s $PWD/../w/tools .git/hooks; mkdir .git/info; ln -s ../../../w/scripts .git/info/attributes`)
	s, err := newServer(dir+"/w", dir+"/m/.git")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeScanner(t, s.repo); closeScanner(t, s.common); s.events.stop() })
	since := settle()
	ask(t, s, OpBaseline, time.Time{})
	for op, want := range map[Op]string{
		OpKeepHooks: "r.claude r.git Rconfig Rhooks Pinfo Rinfo/attributes Rshared rtools Pworktrees Pworktrees/w Rworktrees/w/commondir Rworktrees/w/gitdir",
		OpKeepAll:   "r.claude r.git rtools",
	} {
		a, err := ReadKept(s.answer(op, time.Time{}))
		if got := strings.ReplaceAll(strings.TrimSuffix(a.List, "\x00"), "\x00", " "); err != nil || got != want {
			t.Errorf("%v: %q, want %q, %v", op, got, want, err)
		}
	}
	shell(t, dir, "echo > w/tools/pre-commit; echo x > m/.git/shared/f")
	if _, got := ask(t, s, OpChanged, since); !slices.Equal(got, []string{".claude/f", dir + "/m/.git/hooks/pre-commit"}) {
		t.Errorf("%q", got)
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
	got := keptAsNobody(t, dir, s)
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
			for range 2 {
				changed(t, s, time.Now())
			}
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
