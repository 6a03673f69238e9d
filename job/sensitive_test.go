package job

import (
	"slices"
	"strconv"
	"testing"
)

// TestRankSensitive: hooks come first, and files of installed packages last, to be counted. No name of a directory that a job
// chooses hides a git directory, or settings that a tool reads from the repository.
func TestRankSensitive(t *testing.T) {
	for _, tt := range []struct {
		name           string
		paths          []string
		shown, counted []string
	}{
		{"nothing", nil, nil, nil},
		{
			"hooks first, in their order",
			[]string{"AGENTS.md", ".git/hooks/a", ".vscode/tasks.json", ".git/config", ".envrc", "sub/.husky/pre-commit"},
			[]string{".git/hooks/a", ".git/config", ".envrc", "sub/.husky/pre-commit", "AGENTS.md", ".vscode/tasks.json"},
			nil,
		},
		{
			"packages of each kind",
			[]string{
				"node_modules/a/.eslintrc", "web/node_modules/@b/c/.npmrc", "node_modules/.pnpm/d@1/node_modules/d/.eslintrc",
				".venv/lib/python3.13/site-packages/e/.pylintrc", "env/lib/python3.13/site-packages/f/AGENTS.md", "lib/dist-packages/g/.flake8",
				"vendor/example.org/h/.golangci/AGENTS.md", "target/debug/build/i/.envrc", ".cargo/registry/src/j/.vscode/settings.json",
				"bower_components/k/.eslintrc", ".tox/py/lib/l/.pylintrc", "go/pkg/mod/m@v1/.envrc", "AGENTS.md",
			},
			[]string{"AGENTS.md"},
			[]string{
				"node_modules/a/.eslintrc", "web/node_modules/@b/c/.npmrc", "node_modules/.pnpm/d@1/node_modules/d/.eslintrc",
				".venv/lib/python3.13/site-packages/e/.pylintrc", "env/lib/python3.13/site-packages/f/AGENTS.md", "lib/dist-packages/g/.flake8",
				"vendor/example.org/h/.golangci/AGENTS.md", "target/debug/build/i/.envrc", ".cargo/registry/src/j/.vscode/settings.json",
				"bower_components/k/.eslintrc", ".tox/py/lib/l/.pylintrc", "go/pkg/mod/m@v1/.envrc",
			},
		},
		{
			"git directories below packages",
			[]string{"vendor/a/b", "vendor/x/.git", "vendor/x/.GIT/hooks/a", "node_modules/x/y/HEAD", "node_modules/x/y/config", "target/x/hooks/a", "vendor/a/c"},
			[]string{"vendor/x/.git", "vendor/x/.GIT/hooks/a", "node_modules/x/y/HEAD", "node_modules/x/y/config", "target/x/hooks/a"},
			[]string{"vendor/a/b", "vendor/a/c"},
		},
		{
			"not of a package",
			[]string{"vendor/.envrc", "node_modules/.npmrc", "target", "my_node_modules/a/.npmrc", "Vendor/a/.npmrc", ".cargo/config.toml", ".cargo/a/b/c"},
			[]string{"vendor/.envrc", "node_modules/.npmrc", "target", "my_node_modules/a/.npmrc", "Vendor/a/.npmrc", ".cargo/config.toml", ".cargo/a/b/c"},
			nil,
		},
		{
			"settings that name a directory like packages",
			[]string{".claude/skills/vendor/a/SKILL.md", ".git/x/node_modules/a/b", "sub/.cursor/target/a/rules"},
			[]string{".git/x/node_modules/a/b", ".claude/skills/vendor/a/SKILL.md", "sub/.cursor/target/a/rules"},
			nil,
		},
		{"one is named", []string{"node_modules/a/.eslintrc", "AGENTS.md"}, []string{"AGENTS.md", "node_modules/a/.eslintrc"}, nil},
	} {
		given := slices.Clone(tt.paths)
		shown, counted := RankSensitive(tt.paths, func(p string) string { return p })
		if !slices.Equal(shown, tt.shown) || !slices.Equal(counted, tt.counted) {
			t.Errorf("%s:\n%q\n%q, want\n%q\n%q", tt.name, shown, counted, tt.shown, tt.counted)
		}
		if !slices.Equal(given, tt.paths) {
			t.Errorf("%s: the list itself is now %q", tt.name, tt.paths)
		}
	}
}

// TestSensitiveNotes: people read the first paths, a count of the others, and where all are listed.
func TestSensitiveNotes(t *testing.T) {
	many := []string{"node_modules/a/.eslintrc", "AGENTS.md", ".git/hooks/a\x1b", "node_modules/b/.eslintrc"}
	const packages = "2 sensitive paths changed below installed packages, such as node_modules/a/.eslintrc"
	for _, tt := range []struct {
		name  string
		r     Result
		most  int
		where string
		want  []string
	}{
		{"nothing", Result{}, 5, "", nil},
		{
			"all",
			Result{Sensitive: many, SensitiveMore: 7},
			100, "see --json",
			[]string{
				`sensitive path changed: ".git/hooks/a\x1b"`, "sensitive path changed: AGENTS.md", packages + " (see --json)",
				"and 7 more sensitive paths changed",
			},
		},
		{
			"cut",
			Result{Sensitive: many, SensitiveMore: 7},
			1, "",
			[]string{`sensitive path changed: ".git/hooks/a\x1b"`, packages, "and 8 more sensitive paths changed"},
		},
		{"the example is quoted", Result{Sensitive: []string{"vendor/a\n/x", "vendor/b/x"}}, 1, "", []string{
			`2 sensitive paths changed below installed packages, such as "vendor/a\n/x"`,
		}},
		{"one more", Result{SensitiveMore: 1}, 5, "", []string{"and 1 more sensitive path changed"}},
	} {
		quote := func(s string) string {
			if q := strconv.Quote(s); q != `"`+s+`"` {
				return q
			}
			return s
		}
		if got := tt.r.SensitiveNotes(tt.most, quote, tt.where); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
