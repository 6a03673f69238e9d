package isolate

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/job"
)

// newWorktree starts an embedded supervisor for one worktree, which script creates beside repository main. It returns
// a front for the worktree and the path of the common directory.
func newWorktree(t *testing.T, script, repo, common string, change func(c *Config)) (*front, string) {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Program("git"))
	top := newRepo(t)
	shell(t, top, "git init -q --template= -b main main; cd main; mkdir .git/hooks; echo a >file; git add file; git commit -qm one; cd ..\n"+script)
	repo, common = filepath.Join(top, repo), filepath.Join(top, common)
	s := supervise(t, func(c *Config) {
		c.Repos, c.Commons = []admit.Entry{{Path: repo}}, []string{common}
		if change != nil {
			change(c)
		}
	})
	f := frontOf(t, s, connect(t, s, host.Peer{Embedded: true}), repo)
	f.C.Commons = map[string]string{repo: common}
	return f, common
}

const besides = "git -C main worktree add -q ../wt"

// git runs a script with this workspace and protection, and returns its result.
func (f *front) git(w job.Workspace, p job.Protection, script string) did {
	f.T.Helper()
	spec := f.Spec("sh", "-c", script)
	spec.Workspace, spec.Protect = w, p
	spec.Env = append(slices.Clone(environment), "HOME=/home/job", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	return f.Run(spec)
}

// TestWorktree: git works in a worktree as far as the job may write; of the main checkout only its .git is visible.
func TestWorktree(t *testing.T) {
	const commit = "echo b >>file && git commit -qam two && git log --format=%s && git status --porcelain"
	for _, tt := range []struct {
		name, script, repo, common string
	}{
		{"beside", besides, "wt", "main/.git"},
		{"in the main checkout", "git -C main worktree add -q side/wt", "main/side/wt", "main/.git"},
		{"of a bare repository, in it", "git clone -q --bare main b.git; git -C b.git worktree add -q wt", "b.git/wt", "b.git"},
		{
			"by relative paths", besides + "; echo gitdir: ../main/.git/worktrees/wt >wt/.git; echo ../../../../wt/.git >main/.git/worktrees/wt/gitdir",
			"wt", "main/.git",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, common := newWorktree(t, tt.script, tt.repo, tt.common, nil)
			if d := f.git(job.ReadOnly, 0, "git log --format=%s && git status --porcelain; git commit -q --allow-empty -m x 2>/dev/null || echo refused"); d.Out != "one\nrefused\n" {
				t.Errorf("readonly: %q, %q", d.Out, d.Err)
			}
			if d := f.git(job.Direct, job.ProtectHooks, commit); d.Out != "two\none\n" || d.Sensitive != nil {
				t.Errorf("hooks: %q, %q, %q", d.Out, d.Err, d.Sensitive)
			}
			if d := f.git(job.Direct, job.ProtectAll, "git log --format=%s; git commit -q --allow-empty -m x 2>/dev/null || echo refused"); d.Out != "two\none\nrefused\n" {
				t.Errorf("all: %q, %q", d.Out, d.Err)
			}
			if d := f.git(job.Direct, 0, "git commit -q --allow-empty -m three && git log --format=%s"); d.Out != "three\ntwo\none\n" {
				t.Errorf("direct: %q, %q", d.Out, d.Err)
			}
			if d := f.git(job.Direct, 0, "ls "+filepath.Dir(common)); strings.Contains(d.Out, "file") {
				t.Errorf("the main checkout is there: %q", d.Out)
			}
			if got := shell(t, f.Repo, "find "+common+" ! -uid 1001; git log --format=%s"); got != "three\ntwo\none" {
				t.Errorf("outside: %q", got)
			}
		})
	}
}

// TestWorktreeHooks: sensitive paths of the common directory are reported and protected like those of the repository.
func TestWorktreeHooks(t *testing.T) {
	f, common := newWorktree(t, besides, "wt", "main/.git", nil)
	evil := "cd " + common + "; echo >hooks/pre-commit; git config core.pager evil; mv hooks h 2>/dev/null; true"
	if d := f.git(job.Direct, job.ProtectHooks, evil); d.Sensitive != nil {
		t.Errorf("%q were changed: %s", d.Sensitive, d.Err)
	}
	if d := f.git(job.Direct, job.ProtectHooks, "mv "+common+"/worktrees "+common+"/w || echo refused"); d.Out != "refused\n" {
		t.Errorf("%q, %q", d.Out, d.Err)
	}
	want := []string{common + "/config", common + "/hooks"}
	if d := f.git(job.Direct, 0, evil); !slices.Equal(d.Sensitive, want) {
		t.Errorf("%q, want %q: %s", d.Sensitive, want, d.Err)
	}
}

// TestWorktreeOfReadOnly: where the main checkout is read-only for jobs, its .git is read-only for jobs in a
// worktree.
func TestWorktreeOfReadOnly(t *testing.T) {
	f, common := newWorktree(t, besides, "wt", "main/.git", func(c *Config) {
		c.Repos = append(c.Repos, admit.Entry{Path: filepath.Dir(c.Commons[0]), ReadOnly: true})
	})
	if d := f.git(job.Direct, 0, "echo >"+common+"/x || echo refused; echo >y && echo written"); d.Out != "refused\nwritten\n" {
		t.Errorf("%q, %q", d.Out, d.Err)
	}
}

// TestWorktreeNotServed: a client that may not have jobs in the git directory has them in the worktree alone.
func TestWorktreeNotServed(t *testing.T) {
	const look = "git status; ls .git"
	f, common := newWorktree(t, besides, "wt", "main/.git", func(c *Config) { c.Commons = nil })
	if d := f.git(job.Direct, 0, look); !strings.Contains(d.Err, "not a git repository: "+common) || d.Out != ".git\n" {
		t.Errorf("%q, %q", d.Out, d.Err)
	}
	if d := f.git(job.Direct, 0, "ls -d "+filepath.Dir(common)); d.Status == job.Success {
		t.Errorf("it is there: %q", d.Out)
	}
}

// TestWorktreeSession: a session in a worktree has the git directory too; with an overlay, in its layer.
func TestWorktreeSession(t *testing.T) {
	f, _ := newWorktree(t, besides, "wt", "main/.git", nil)
	for _, c := range []struct {
		w    job.Workspace
		want string // the subjects of the commits outside, afterwards
	}{{job.Overlay, "one"}, {job.Direct, "x\none"}} {
		ss, err := f.C.OpenSession(t.Context(), job.SessionSpec{Repo: f.Repo, Workspace: c.w})
		if err != nil {
			t.Fatal(err)
		}
		spec := f.Spec("sh", "-c", "git status -s && git -c user.name=a -c user.email=a commit -q --allow-empty -m x && git log --format=%s")
		spec.Session, spec.Workspace, spec.Env = ss.ID, c.w, append(slices.Clone(environment), "HOME=/home/job")
		if d := f.Run(spec); d.Out != "x\none\n" {
			t.Errorf("%v: %q, %q", c.w, d.Out, d.Err)
		}
		spec.Workspace = job.ReadOnly
		if spec.Args[2] = "git add . 2>/dev/null; git commit --allow-empty -qm y 2>&1"; !strings.Contains(f.Run(spec).Out, "Read-only file system") {
			t.Errorf("%v: a job that may not write has committed", c.w)
		}
		if got := shell(t, f.Repo, "git log --format=%s"); got != c.want {
			t.Errorf("%v: outside: %q", c.w, got)
		}
		if _, err := f.C.CloseSession(t.Context(), ss.ID, false); err != nil {
			t.Error(err)
		}
	}
}
