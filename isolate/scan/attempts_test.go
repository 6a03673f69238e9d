package scan

import (
	"slices"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// repository is a script that makes a git repository with a commit, a nested repository and a directory for a worktree.
const repository = `
git init -q -b main
mkdir -p src/a/b docs .claude .github/workflows
echo x > src/a/b/x.go; echo y > README.md; echo '{}' > .claude/settings.json; echo a > AGENTS.md
echo on: push > .github/workflows/ci.yml
mkdir -p scripts; echo ok > scripts/hook.sh; ln -s ../../scripts/hook.sh .git/hooks/post-merge
git add . && git commit -qm one
git init -q vendor/dep && cd vendor/dep && echo z > z && git add z && git commit -qm dep
`

// attempts lists what a job may do, and the paths that must be reported; after the comment "Nothing to report", none.
var attempts = []struct {
	name   string
	before string // run before the baseline
	job    string
	want   []string
}{
	// The repository's own git directory.
	{"hook made", "", "echo evil > .git/hooks/pre-commit", []string{".git/hooks/pre-commit"}},
	{"hook changed in place", "echo a > .git/hooks/pre-push", "echo b >> .git/hooks/pre-push", []string{".git/hooks/pre-push"}},
	{"hook made executable", "echo a > .git/hooks/pre-push", "chmod +x .git/hooks/pre-push", []string{".git/hooks/pre-push"}},
	{
		"hook with times set back", "echo a > .git/hooks/pre-push", "echo b > .git/hooks/pre-push; touch -d 2001-01-01 .git/hooks/pre-push",
		[]string{".git/hooks/pre-push"},
	},
	{"hook removed", "echo a > .git/hooks/pre-push", "rm .git/hooks/pre-push", []string{".git/hooks/pre-push"}},
	{"hook by link", "", "ln -s ../../README.md .git/hooks/pre-commit", []string{".git/hooks/pre-commit"}},
	{"hook by hard link", "echo a > evil", "ln evil .git/hooks/pre-commit", []string{".git/hooks/pre-commit"}},
	{"hook by rename", "echo a > evil", "mv evil .git/hooks/pre-commit", []string{".git/hooks/pre-commit"}},
	{"hook deep below", "", "mkdir -p .git/hooks/a/b; echo a > .git/hooks/a/b/c", []string{".git/hooks/a/b/c"}},
	{"script behind a hook that is a link", "", "echo evil >> scripts/hook.sh", []string{".git/hooks/post-merge"}},
	{
		"script behind it replaced by an older one", "mkdir s2; echo evil > s2/hook.sh", "mv scripts s1; mv s2 scripts",
		[]string{".git/hooks/post-merge"},
	},
	{"hooks swapped for a link", "", "mv .git/hooks .git/h; ln -s ../src .git/hooks", []string{".git/hooks"}},
	{
		"hooks replaced", "mkdir h; echo evil > h/pre-commit", "mv .git/hooks old; mv h .git/hooks",
		[]string{".git/hooks", ".git/hooks/pre-commit"},
	},
	{"hooks emptied", "", "mv .git/hooks old; mkdir .git/hooks", []string{".git/hooks"}},
	{"git config", "", "git config core.fsmonitor evil", []string{".git/config"}},
	{"config.worktree", "", "echo > .git/config.worktree", []string{".git/config.worktree"}},
	{"attributes", "", "mkdir -p .git/info; echo > .git/info/attributes", []string{".git/info/attributes"}},
	{"alternates", "", "echo /x > .git/objects/info/alternates", []string{".git/objects/info/alternates"}},
	{"commondir", "", "echo /x > .git/commondir", []string{".git/commondir"}},
	{
		"rebase todo", "", "mkdir .git/rebase-merge; echo exec evil > .git/rebase-merge/git-rebase-todo",
		[]string{".git/rebase-merge/git-rebase-todo"},
	},
	{"worktree", "", "mkdir -p .git/worktrees/w; echo /x > .git/worktrees/w/commondir", []string{".git/worktrees/w/commondir"}},
	{"git worktree add", "", "git worktree add -q wt -b wt", []string{
		".git/worktrees/wt/commondir", ".git/worktrees/wt/gitdir", "wt/.claude/settings.json", "wt/.git",
		"wt/.github/workflows/ci.yml", "wt/AGENTS.md",
	}},
	{
		"module", "", "mkdir -p .git/modules/libs/x/hooks; echo > .git/modules/libs/x/config; echo > .git/modules/libs/x/hooks/update",
		[]string{".git/modules/libs/x/config", ".git/modules/libs/x/hooks/update"},
	},
	{"module by link", "", "mkdir .git/modules; ln -s ../../src .git/modules/x", []string{".git/modules/x"}},
	{"git directory replaced", "", "mv .git .git-away; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit", []string{
		".git", ".git-away/HEAD", ".git-away/config", ".git-away/hooks/post-merge", ".git-away/info/exclude", ".git/hooks/pre-commit",
	}},
	{
		"git directory replaced by a file", "", "mv .git evilgit; echo gitdir: ./evilgit > .git",
		[]string{".git", "evilgit/HEAD", "evilgit/config", "evilgit/hooks/post-merge", "evilgit/info/exclude"},
	},
	{"git directory replaced by a link", "", "mv .git ../away; ln -s ../away .git", []string{".git"}},
	{"git directory removed", "", "rm -rf .git", []string{".git"}},

	// Nested git directories.
	{"nested", "", "mkdir -p newdir/.git/hooks; echo evil > newdir/.git/hooks/pre-commit", []string{"newdir/.git/hooks/pre-commit"}},
	{"nested, empty", "", "mkdir -p newdir/.git", []string{"newdir/.git"}},
	{"nested, known", "", "echo evil > vendor/dep/.git/hooks/pre-commit", []string{"vendor/dep/.git/hooks/pre-commit"}},
	{"nested, its parent renamed", "", "mv vendor/dep vendor/peg", []string{"vendor/dep/.git", "vendor/peg/.git/config", "vendor/peg/.git/info/exclude"}},
	{"nested, removed", "", "rm -rf vendor", []string{"vendor/dep/.git"}},
	{
		"nested, in heavy directories", "", "mkdir -p node_modules/a/b/c/.git; echo > node_modules/a/b/c/.git/config",
		[]string{"node_modules/a/b/c/.git/config"},
	},
	{"git init", "", "git init -q sub", []string{"sub/.git/config", "sub/.git/info/exclude"}},
	{
		"prepared under an innocent name", "mkdir -p src/data/hooks; echo evil > src/data/hooks/pre-commit", "mv src/data src/.git",
		[]string{"src/.git/hooks/pre-commit"},
	},
	{
		"prepared above", "mkdir -p data/git/hooks data/git/objects; echo evil > data/git/hooks/pre-commit",
		"mv data/git data/.git; mv data lib",
		[]string{"lib/.git/hooks/pre-commit"},
	},
	{"other case", "", "mkdir -p src/.GIT; echo > src/.GIT/Config", []string{"src/.GIT/Config"}},
	{"short name", "", "mkdir -p src/GIT~1; echo > src/GIT~1/config", []string{"src/GIT~1/config"}},
	{"dots and blanks", "", "echo x > 'src/.git . '", []string{"src/.git . "}},
	{"ignorable code point", "", "echo x > src/.g$(printf '\\342\\200\\214')it", []string{"src/.g\u200cit"}},

	// Look-alikes.
	{"bare root", "", `mkdir -p objects refs hooks; echo "ref: refs/heads/x" > HEAD; echo evil > hooks/pre-commit
		printf "[core]\n\tbare = true\n" > config`, []string{"HEAD", "config", "hooks/pre-commit"}},
	{
		"bare in two steps", "mkdir -p src/objects src/hooks; echo > src/HEAD; echo evil > src/hooks/update; echo > src/config",
		"mkdir src/refs",
		[]string{"src/HEAD", "src/config", "src/hooks/update"},
	},
	{"bare by commondir", "", "echo > src/HEAD; echo ../.git > src/commondir", []string{"src/HEAD", "src/commondir"}},
	{
		"bare hides nothing", "", "echo > HEAD; mkdir -p refs/a/.git objects/b/.git; echo > refs/a/.git/config; echo > objects/b/.git/config",
		[]string{"HEAD", "objects/b/.git/config", "refs/a/.git/config"},
	},
	{"git init --bare", "", "git init -q --bare x", []string{"x/HEAD", "x/config", "x/info/exclude"}},

	// Agents, editors, shells, tools.
	{"attributes in the tree", "", "echo > src/a/b/.gitattributes", []string{"src/a/b/.gitattributes"}},
	{"agent settings changed", "", "echo x >> .claude/settings.json", []string{".claude/settings.json"}},
	{
		"agent settings, new", "", "mkdir -p src/.codex/rules; echo > src/.codex/config.toml; echo > src/.codex/rules/x",
		[]string{"src/.codex/config.toml", "src/.codex/rules/x"},
	},
	{"agent settings, empty", "", "mkdir src/.cursor", []string{"src/.cursor"}},
	{"agent settings by link", "", "ln -s /etc src/.gemini", []string{"src/.gemini"}},
	{"agent settings by pipe", "", "mkfifo src/.agents .mcp.json", []string{".mcp.json", "src/.agents"}},
	{"agent settings removed", "", "rm -r .claude", []string{".claude"}},
	{"instructions", "", "echo obey >> AGENTS.md; echo > src/Claude.md", []string{"AGENTS.md", "src/Claude.md"}},
	{"component by link", "", "mv .github x; ln -s x .github", []string{".github", ".github/workflows"}},
	{
		"partly sensitive directory", "", "mkdir .cargo; echo > .cargo/config.toml; echo > .cargo/other; mkdir .cargo/.git",
		[]string{".cargo/.git", ".cargo/config.toml"},
	},
	{
		"shell and tools", "", "echo > .envrc; echo > src/.npmrc; mkdir .husky .vscode; echo > .husky/pre-push; echo > .vscode/tasks.json",
		[]string{".envrc", ".husky/pre-push", ".vscode/tasks.json", "src/.npmrc"},
	},
	{"workspace of an editor", "", "echo > 'Überall und sehr lang, damit kein Name einer Regel so lang ist.Code-Workspace'", []string{"Überall und sehr lang, damit kein Name einer Regel so lang ist.Code-Workspace"}},
	{"code that interpreters start with", "", "echo > .pdbrc; echo > src/.Rprofile; mkdir -p .helix; echo > .helix/languages.toml; echo > .helix/other", []string{".helix/languages.toml", ".pdbrc", "src/.Rprofile"}},

	// Changes hidden from git. Flags of the index and packed references are not looked at.
	{"assume unchanged", "", "git update-index --assume-unchanged README.md; echo evil > README.md", nil},
	{"skip worktree", "", "git update-index --skip-worktree src/a/b/x.go", nil},
	{"replaced object", "", "mkdir .git/refs/replace; echo x > .git/refs/replace/a", []string{".git/refs/replace/a"}},
	{"hidden new files", "", "echo evil >> .git/info/exclude", []string{".git/info/exclude"}},

	// Access for other users.
	{"hooks opened", "", "chmod 777 .git/hooks", []string{".git/hooks"}},
	{"git directory opened", "", "chmod 777 .git", []string{".git"}},
	{"root opened", "", "chmod 777 .", []string{"."}},
	{"directory above a repository opened", "", "chmod 777 vendor", []string{"vendor"}},
	{"directory above instructions opened", "mkdir -p deep/down; echo > deep/down/CLAUDE.md", "chmod 777 deep; echo > deep/down/x", []string{"deep"}},
	{"closed to its owner's group", "chmod 755 .claude", "chmod 700 .claude", []string{".claude"}},

	// Behind links.
	{"hook behind hooks that are a link", "rm -r .git/hooks; mkdir tools; ln -s ../tools .git/hooks", "echo evil > tools/pre-commit", []string{".git/hooks/pre-commit"}},
	{"hook behind it changed", "rm -r .git/hooks; mkdir tools; echo > tools/update; ln -s $PWD/tools .git/hooks", "echo evil > tools/update", []string{".git/hooks/update"}},
	{"hook behind it removed", "rm -r .git/hooks; mkdir tools; echo > tools/update; ln -s ../tools .git/hooks", "rm tools/update", []string{".git/hooks/update"}},
	{"directory behind it replaced", "rm -r .git/hooks; mkdir tools t2; ln -s ../tools .git/hooks", "mv tools t1; mv t2 tools", []string{".git/hooks"}},
	{"directory behind it opened", "rm -r .git/hooks; mkdir tools; ln -s ../tools .git/hooks", "chmod 777 tools", []string{".git/hooks"}},
	{"file behind an absolute link", "ln -s $PWD/README.md CLAUDE.md", "echo obey >> README.md", []string{"CLAUDE.md"}},
	{"file behind a link that leaves", "ln -s ../$(basename $PWD)/README.md CLAUDE.md", "echo obey >> README.md", []string{"CLAUDE.md"}},
	{"link on its way replaced", "echo a > a; echo b > b; ln -s a way; ln -s way .envrc", "ln -sfn b way", []string{".envrc"}},
	{"file made where a link leads", "ln -s $PWD/docs/env .envrc", "echo evil > docs/env", []string{".envrc"}},
	{"component that is a link", "mv .github gh; ln -s gh .github", "echo evil >> gh/workflows/ci.yml; echo > gh/other", []string{".github/workflows/ci.yml"}},
	{"link in a sensitive directory", "mkdir skills; echo > skills/x; ln -s ../skills .claude/skills", "echo obey >> skills/x; mkdir -p skills/a/b; echo > skills/a/b/c", []string{".claude/skills/a/b/c", ".claude/skills/x"}},
	{"link in a directory behind a link", "mkdir s t; ln -s ../t s/t; ln -s ../s .claude/s; ln -s ../s t/s", "echo > t/x; echo > s/y", []string{".claude/s/t/x", ".claude/s/y"}},
	{"git directory that is a link", "mv vendor/dep/.git vendor/g; ln -s ../g vendor/dep/.git", "echo > vendor/g/hooks/pre-commit; echo > vendor/g/x", []string{"vendor/dep/.git/hooks/pre-commit", "vendor/g/hooks/pre-commit"}},

	// What the git configuration names.
	{"hook of core.hooksPath", "mkdir -p .tools/h; git config core.hooksPath .tools/h", "echo evil > .tools/h/pre-commit; echo > .tools/x", []string{".tools/h/pre-commit"}},
	{"core.hooksPath, absolute", "mkdir h; git config core.hooksPath $PWD/h", "echo evil > h/pre-commit", []string{"h/pre-commit"}},
	{"core.hooksPath made", "git config core.hooksPath h", "mkdir h; echo evil > h/pre-commit", []string{"h"}},
	{"core.hooksPath replaced", "mkdir h h2; echo evil > h2/pre-commit; git config core.hooksPath h", "mv h h3; mv h2 h", []string{"h"}},
	{"core.hooksPath by a link", "mkdir h; ln -s h g; git config core.hooksPath g", "echo evil > h/pre-commit", []string{"h/pre-commit"}},
	{"core.hooksPath of a nested repository", "mkdir vendor/dep/h; git -C vendor/dep config core.hooksPath h", "echo > vendor/dep/h/x", []string{"vendor/dep/h/x"}},
	{
		"core.hooksPath of a module", "git init -q --bare .git/modules/m; git -C .git/modules/m config core.worktree ../../../src; " +
			"git config -f .git/modules/m/config core.hooksPath h; mkdir src/h", "echo > src/h/x", []string{"src/h/x"},
	},
	{"included", "echo > shared; git config include.path ../shared", "git config -f shared core.pager evil", []string{"shared"}},
	{"included, by condition", "echo > shared; git config includeIf.onbranch:x.path ../shared", "echo >> shared", []string{"shared"}},
	{"included by an included one", "mkdir c; git config -f c/a include.path b; git config include.path ../c/a", "git config -f c/b core.pager evil", []string{"c/b"}},
	{"included, replaced", "echo > a; echo evil > b; git config include.path ../a", "mv b a", []string{"a"}},
	{"included, removed", "echo > a; git config include.path ../a", "rm a", []string{"a"}},
	{"attributes", "git config core.attributesFile attrs", "echo > attrs", []string{"attrs"}},
	{"named by a configuration that is a link", "mv .git/config c; ln -s ../c .git/config; git config -f c core.hooksPath h; mkdir h", "echo > h/x", []string{"h/x"}},
	{"program", "echo > src/fs; git config core.fsmonitor ./src/fs", "echo evil > src/fs", []string{"src/fs"}},
	{"program of a filter", `git config filter.x.clean 'sh "src/a/clean.sh" --x'`, "echo evil > src/a/clean.sh", []string{"src/a/clean.sh"}},
	{"program of an alias", "git config alias.x '!tools/x; true'", "mkdir tools; echo evil > tools/x", []string{"tools/x"}},
	{"program in a configuration that was made sensitive", "echo > t; git config -f c include.path t; git config include.path ../c", "echo > t; echo > c", []string{"c", "t"}},

	{"newline in a name", "", "mkdir 'a\nb'; echo > 'a\nb/.envrc'", []string{"a\nb/.envrc"}},

	// Nothing to report.
	{"commit", "", "echo more >> README.md; git add . && git commit -qm two", nil},
	{"branch", "", "git checkout -qb feature/config; echo > f; git add f; git commit -qm f; git checkout -q main; git merge -q feature/config", nil},
	{"gc", "", "git gc -q --prune=now; git pack-refs --all; git reflog expire --all --expire=now", nil},
	{"stash, tag, rebase", "", `echo > g; git add g; git stash -q; git stash pop -q; git commit -qm g; git tag v1; git tag -am v v2
		git checkout -qb other HEAD~1; echo > h; git add h; git commit -qm h; git rebase -q main; git reset -q --hard HEAD~1; git status`, nil},
	{"commit in a bare look-alike", "git init -q --bare b.git", "git push -q b.git main; git --git-dir=b.git symbolic-ref HEAD refs/heads/main", nil},
	{"build", "", "mkdir -p build/objects build/config node_modules/x/hooks; echo > build/config/hooks; echo > HEAD; rm README.md; mv docs documents", nil},
	{"commits with a split index", "git update-index --split-index; git config splitIndex.maxPercentChange 0", "for i in 1 2 3; do echo > n$i; git add n$i; git commit -qm n; done", nil},
	{"references packed beside a replacement", "git commit -q --allow-empty -m two; git replace --graft HEAD; git pack-refs --all", "git tag v1; git pack-refs --all", nil},
	{"ordinary directory opened", "", "chmod 777 docs src/a/b", nil},
	{"opened and closed again", "", "m=$(stat -c %a .git); chmod 777 .git; chmod $m .git", nil},
	{"sample hooks", "", "echo x >> .git/hooks/pre-commit.sample", nil},
	{"an agent's own checkout", "mkdir -p .claude/worktrees/w", "echo > .claude/worktrees/w/main.go", nil},
	{"below a link to what contains it", "ln -s ../.. .claude/up; ln -s .. .claude/up2; ln -s . .claude/self; ln -s .. vendor/.claude", "echo > src/new; echo > vendor/new", nil},
	{"behind a link that is not sensitive", "ln -s ../docs src/docs; ln -s ../docs .github/docs", "echo > docs/new", nil},
	{"settings that name no file", "git config core.pager less; git config remote.o.url ../src/x; git config core.hooksPath '~/h'; git config core.editor /usr/bin/vi", "echo > src/x; echo > less; mkdir h", nil},
	{"directory by the name of a file", "", "mkdir .envrc CLAUDE.md; echo > CLAUDE.md/x", nil},
}

// TestAttempts: each attempt is reported once with its paths, with exact and with distrusted times, and matches a served
// scanner.
func TestAttempts(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("git"))
	for _, tc := range attempts {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			shell(t, dir, repository)
			shell(t, dir, tc.before)
			// One scanner knows the file system's times, the other does not trust them.
			fine, coarse := scanner(t, dir, Bounds{}), scanner(t, dir, Bounds{})
			coarse.exact = false
			both := []*Scanner{fine, coarse}
			for _, s := range both {
				if rep := baseline(t, s); rep.Incomplete {
					t.Error("Baseline is incomplete")
				}
			}
			watching := serving(t, dir)
			armed(t, watching)
			since := settle()
			for _, s := range both {
				if rep := changed(t, s, since); rep.Paths != nil || rep.Incomplete {
					t.Errorf("nothing was done, but got %+v", rep)
				}
			}
			shell(t, dir, tc.job)
			for _, s := range both {
				rep := changed(t, s, since)
				if !slices.Equal(rep.Paths, tc.want) || rep.More != 0 || rep.Incomplete {
					t.Errorf("exact %v: %+v\nwant %q", s.exact, rep, tc.want)
				}
			}
			shown := hasEvents(watching.events.fd)
			if a, got := ask(t, watching, OpChanged, since); !slices.Equal(got, tc.want) || a.Heard != shown || tc.want != nil && !shown {
				t.Errorf("%+v, shown %v", a, shown)
			}
			armed(t, watching)
			since = settle()
			for _, s := range both {
				if rep := changed(t, s, since); rep.Paths != nil {
					t.Errorf("exact %v: reported again: %q", s.exact, rep.Paths)
				}
				if rep := changed(t, s, time.Time{}); s.exact && rep.Paths != nil {
					t.Errorf("the change was not remembered: %q", rep.Paths)
				}
				same(t, s)
			}
		})
	}
}
