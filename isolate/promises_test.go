package isolate

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/job"
	"corral/workspace/changes/stream"
)

// A promise is a row of the table of what is reported and protected, in docs/explanation/isolation.md: its first cell, and an
// example.
type promise struct {
	what   string
	made   string // makes the example in a repository on the host, before a job
	job    string // what a job tries; w FILE appends to a file
	report string // the sensitive paths in its result, without protection
	// The answers with hooks and with all protected: w is written, r refused, in turn for each w.
	hooks, all string
	marked     string // the sensitive paths among the changes of a session with an overlay, in which the same is done
}

// repositoryOf is the script that makes the repository of every promise; it removes what was in it.
const repositoryOf = `find . -mindepth 1 -delete; git init -q --template= -b main .; mkdir .git/hooks docs tools
echo x >file; git add file; git commit -qm one; echo a >docs/env; `

var promises = []promise{
	{
		"a sensitive path at the root", "mkdir .vscode; echo '{}' >.vscode/tasks.json; echo b >.envrc",
		"w .envrc; w .vscode/tasks.json; w .git/config; w .git/hooks/pre-commit",
		".envrc .git/config .git/hooks/pre-commit .vscode/tasks.json", "rrrr", "rrrr", ".envrc .git/config .git/hooks/pre-commit .vscode/tasks.json",
	},
	{
		"one of a repository nested in it", "git init -q --template= a/b; echo x >a/b/.envrc", "w a/b/.envrc; w a/b/.git/config",
		"a/b/.envrc a/b/.git/config", "rr", "rr", "a/b/.envrc a/b/.git/config",
	},
	{"one elsewhere in the tree", "mkdir src; echo x >src/.envrc", "w src/.envrc", "src/.envrc", "w", "w", "src/.envrc"},
	{"one that the job makes", "", "w .envrc; w .npmrc", ".envrc .npmrc", "ww", "ww", ".envrc .npmrc"},
	{"the way to one", "mkdir -p .github/workflows; echo x >.github/workflows/x", "mv .github g 2>/dev/null && echo written || echo refused", ".github/workflows", "r", "r", ".github"},
	{"permissions of its directory", "", "chmod 777 .git 2>/dev/null && echo written || echo refused", ".git", "r", "r", ".git"},
	{
		"git's branches, objects and index", "",
		"w .git/refs/heads/x; w .git/objects/x; w .git/logs/x; git update-index --assume-unchanged file 2>/dev/null && echo written || echo refused",
		"", "wwww", "rrrr", "",
	},
	{
		"what hides new files from git", "mkdir -p .git/info", "w .git/info/exclude",
		".git/info/exclude", "w", "r", ".git/info/exclude",
	},
	{"a file behind a link", "ln -s docs/env .envrc", "w docs/env", ".envrc", "r", "r", "docs/env"},
	{"behind an absolute link", "ln -s $PWD/docs/env .envrc", "w docs/env", ".envrc", "r", "r", "docs/env"},
	{"behind a link that leaves the repository and comes back", "ln -s ../../../..$PWD/docs/env .envrc", "w docs/env", ".envrc", "r", "r", "docs/env"},
	{
		"a link on the way of another", "ln -s docs/env way; ln -s way .envrc", "ln -sfn file way 2>/dev/null && echo written || echo refused",
		".envrc", "r", "r", "way",
	},
	{"a directory behind a link", "rmdir .git/hooks; ln -s ../tools .git/hooks", "w tools/pre-commit", ".git/hooks/pre-commit", "r", "r", "tools/pre-commit"},
	{
		"the same, inside a sensitive directory", "mkdir .claude; ln -s ../docs .claude/docs", "w docs/env; w docs/new",
		".claude/docs/env .claude/docs/new", "rr", "rr", "docs/env docs/new",
	},
	{
		"a directory on the way that is a link", "mkdir -p gh/workflows; ln -s gh .github", "w gh/workflows/x; w gh/x",
		".github/workflows/x", "rw", "rw", "gh/workflows/x",
	},
	{"a git directory that is a link", "mv .git g; ln -s g .git", "w g/config; w g/refs/heads/x", ".git/config g/config", "rw", "rr", "g/config"},
	{"a link into nothing", "ln -s docs/none .envrc", "w docs/none", ".envrc", "w", "w", "docs/none"},
	{"a directory that contains the link", "mkdir .claude; ln -s ../.. .claude/up; ln -s .. .claude/root", "w docs/env", "", "w", "w", ""},
	{"a file that has another name", "ln docs/env .envrc", "w docs/env", ".envrc", "w", "w", ""},
	{
		"where a worktree of git is, in its entry", "rm -rf ../wt; git worktree add -q ../wt", "w .git/worktrees/wt/gitdir",
		".git/worktrees/wt/gitdir", "r", "r", ".git/worktrees/wt/gitdir",
	},
	{"a file that git's configuration names", "git config core.hooksPath tools", "w tools/pre-commit", "tools/pre-commit", "r", "r", "tools/pre-commit"},
}

const tryWriting = `w() { (echo evil >>"$1") 2>/dev/null && echo written || echo refused; }; `

// TestPromises: what the page says of each row is true.
func TestPromises(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("git"))
	for _, p := range promises {
		t.Run(p.what, func(t *testing.T) {
			f := sharedFront(t)
			f.Sh("true") // builds the jail: what is made now is made by others since its last job
			for protect, want := range map[job.Protection]string{job.ProtectNone: "", job.ProtectHooks: p.hooks, job.ProtectAll: p.all} {
				shell(t, f.Repo, repositoryOf+p.made)
				spec := f.Spec("sh", "-c", tryWriting+p.job)
				spec.Protect, spec.Env = protect, append(slices.Clone(environment), "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/home/job")
				d := f.Run(spec)
				var got strings.Builder
				for line := range strings.Lines(d.Out) {
					got.WriteByte(line[0])
				}
				if protect != job.ProtectNone {
					if got.String() != want {
						t.Errorf("%v: %q, want %q\n%s", protect, got.String(), want, d.Err)
					}
					continue
				}
				if strings.Join(d.Sensitive, " ") != p.report || strings.Contains(d.Out, "refused") || d.SensitiveIncomplete {
					t.Errorf("without protection: %q, want %q\n%s%s", d.Sensitive, p.report, d.Out, d.Err)
				}
			}
			shell(t, f.Repo, repositoryOf+p.made)
			if got := f.marked(p.job); got != p.marked {
				t.Errorf("in an overlay: %q, want %q", got, p.marked)
			}
		})
	}
}

// marked returns the sensitive paths among the changes of a new session with an overlay, in which a script ran.
func (f *front) marked(script string) string {
	f.T.Helper()
	ss := f.Session(job.SessionSpec{Workspace: job.Overlay})
	defer f.CloseSession(ss, true)
	if d := f.In(ss, tryWriting+script); strings.Contains(d.Out, "refused") {
		f.T.Errorf("in an overlay: %s%s", d.Out, d.Err)
	}
	marked, sum := f.changes(ss)
	if sum.Incomplete {
		f.T.Error("the changes are incomplete")
	}
	return strings.Join(marked, " ")
}

// changes returns the sensitive paths among the changes of a session, sorted, and the sum of all.
func (f *front) changes(ss job.Session) (marked []string, sum *stream.Sum) {
	f.T.Helper()
	spec := f.Spec("changes", "list", f.Repo)
	spec.Session, spec.Repo, spec.Tool, spec.Workspace = ss.ID, "", job.ToolChanges, job.ReadOnly
	d := f.Run(spec)
	for r := stream.NewReader(strings.NewReader(d.Out)); sum == nil; {
		record, err := r.Next()
		if err != nil {
			f.T.Fatalf("changes list: %v\n%+v %s", err, d.Result, d.Err)
		}
		if e, ok := record.(*stream.Entry); ok && e.Sensitive {
			marked = append(marked, e.Path)
		}
		sum, _ = record.(*stream.Sum)
	}
	slices.Sort(marked)
	return marked, sum
}

// TestMissed: a check of sensitive paths and a list of changes that are incomplete name what could not be examined.
func TestMissed(t *testing.T) {
	f := sharedFront(t)
	closed := func(dir string) {
		t.Helper()
		dir = filepath.Join(f.Repo, dir)
		if err := errors.Join(os.Chown(dir, 0, 0), os.Chmod(dir, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	shell(t, f.Repo, "mkdir -p a/secret b; echo x >b/x")
	closed("a/secret")
	if d := f.Run(f.Spec("sh", "-c", "echo x >file")); !d.SensitiveIncomplete || d.SensitiveMissed != "a/secret" {
		t.Errorf("%v, %q: %s", d.SensitiveIncomplete, d.SensitiveMissed, d.Err)
	}
	ss := f.Session(job.SessionSpec{Workspace: job.Overlay})
	f.Must(ss, "echo y >b/x")
	closed("b")
	if _, sum := f.changes(ss); !sum.Incomplete || sum.Missed != "b" {
		t.Errorf("changes: %+v", sum)
	}
}

// TestPromisesDocumented: the page has a row for each promise, and no other.
func TestPromisesDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/explanation/isolation.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\n### What is reported and protected\n")
	rest, _, _ = strings.Cut(rest, "\n### ")
	var rows []string
	for _, m := range regexp.MustCompile(`(?m)^\| (.*?) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$`).FindAllStringSubmatch(rest, -1) {
		rows = append(rows, strings.Join(m[1:], " | "))
	}
	for _, p := range promises {
		want := p.what + " | " + yes(p.report != "") + " | " + protection(p.hooks) + " | " + protection(p.all) + " | " + yes(p.marked != "")
		if !slices.Contains(rows, want) {
			t.Errorf("the page lacks the row\n| %s |", want)
		}
		rows = slices.DeleteFunc(rows, func(r string) bool { return r == want })
	}
	for _, r := range rows {
		t.Errorf("no test for the row\n| %s |", r)
	}
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// protection returns the word on the page for a job's answers.
func protection(answers string) string {
	switch {
	case strings.Trim(answers, "r") == "":
		return "protected"
	case strings.Trim(answers, "w") == "":
		return "–"
	}
	return "what is sensitive in it"
}

// TestOthersChanges: what others made since the last job is not blamed on the job, and what the job removes of it is reported.
func TestOthersChanges(t *testing.T) {
	f := sharedFront(t)
	f.Sh("true")
	for i := range 8 {
		shell(t, f.Repo, "echo x >.envrc; mkdir -p new/.vscode new/deep; echo x >new/.vscode/tasks.json; echo x >new/deep/AGENTS.md")
		d := f.Run(f.Spec("sh", "-c", "echo y >new/file; echo y >new/.vscode/x; rm .envrc"))
		if want := []string{".envrc", "new/.vscode/x"}; !slices.Equal(d.Sensitive, want) || d.SensitiveIncomplete {
			t.Errorf("%d: %q, want %q", i, d.Sensitive, want)
		}
		shell(t, f.Repo, "rm -r new")
		if d := f.Run(f.Spec("sh", "-c", "echo >file")); len(d.Sensitive) > 0 {
			t.Errorf("%d: %q", i, d.Sensitive)
		}
	}
}

// TestReportsReadOnly: a job that may only read reports what changed meanwhile, too: a job that writes can have passed it a
// descriptor.
func TestReportsReadOnly(t *testing.T) {
	f := sharedFront(t)
	shell(t, f.Repo, "mkdir -p .git/hooks")
	spec := f.Spec("sh", "-c", "echo ready; read line")
	spec.Workspace = job.ReadOnly
	l, err := f.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	l.Until("ready")
	shell(t, f.Repo, "echo x >.git/hooks/pre-commit")
	l.In.Close()
	d, err := l.End()
	if want := []string{".git/hooks/pre-commit"}; err != nil || !slices.Equal(d.Sensitive, want) {
		t.Errorf("%q, want %q (%v)", d.Sensitive, want, err)
	}
}
