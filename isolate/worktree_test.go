package isolate

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/isolate/host"
	"corral/isolate/probe"
	"corral/job"
)

// newWorktree starts an embedded supervisor for one worktree, which script creates beside repository main. It returns
// a front for the worktree and the path of the common directory.
func newWorktree(t *testing.T, script, repo, common string, change func(c *Config)) (*front, string) {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Program("git"))
	top := newRepo(t)
	shell(t, top, "git init -q -b main main; cd main; echo a >file; git add file; git commit -qm one; cd ..\n"+script)
	repo, common = filepath.Join(top, repo), filepath.Join(top, common)
	s := supervise(t, func(c *Config) {
		c.Repos, c.Commons = []Repo{{Path: repo}}, []string{common}
		if change != nil {
			change(c)
		}
	})
	f := &front{t, s, connect(t, s, host.Peer{Embedded: true}), repo}
	f.c.Commons = map[string]string{repo: common}
	return f, common
}

const besides = "git -C main worktree add -q ../wt"

// git runs a script with this workspace and protection, and returns its result.
func (f *front) git(w job.Workspace, p job.Protection, script string) did {
	f.t.Helper()
	spec := f.spec("sh", "-c", script)
	spec.Workspace, spec.Protect = w, p
	spec.Env = append(slices.Clone(environment), "HOME=/home/job", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	return f.run(spec)
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
			if d := f.git(job.ReadOnly, 0, "git log --format=%s && git status --porcelain; git commit -q --allow-empty -m x 2>/dev/null || echo refused"); d.out != "one\nrefused\n" {
				t.Errorf("readonly: %q, %q", d.out, d.err)
			}
			if d := f.git(job.Direct, job.ProtectHooks, commit); d.out != "two\none\n" || d.Sensitive != nil {
				t.Errorf("hooks: %q, %q, %q", d.out, d.err, d.Sensitive)
			}
			if d := f.git(job.Direct, job.ProtectAll, "git log --format=%s; git commit -q --allow-empty -m x 2>/dev/null || echo refused"); d.out != "two\none\nrefused\n" {
				t.Errorf("all: %q, %q", d.out, d.err)
			}
			if d := f.git(job.Direct, 0, "git commit -q --allow-empty -m three && git log --format=%s"); d.out != "three\ntwo\none\n" {
				t.Errorf("direct: %q, %q", d.out, d.err)
			}
			if d := f.git(job.Direct, 0, "ls "+filepath.Dir(common)); strings.Contains(d.out, "file") {
				t.Errorf("the main checkout is there: %q", d.out)
			}
			if got := shell(t, f.repo, "find "+common+" ! -uid 1001; git log --format=%s"); got != "three\ntwo\none" {
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
		t.Errorf("%q were changed: %s", d.Sensitive, d.err)
	}
	if d := f.git(job.Direct, job.ProtectHooks, "mv "+common+"/worktrees "+common+"/w || echo refused"); d.out != "refused\n" {
		t.Errorf("%q, %q", d.out, d.err)
	}
	want := []string{common + "/config", common + "/hooks"}
	if d := f.git(job.Direct, 0, evil); !slices.Equal(d.Sensitive, want) {
		t.Errorf("%q, want %q: %s", d.Sensitive, want, d.err)
	}
}

// TestWorktreeOfReadOnly: where the main checkout is read-only for jobs, its .git is read-only for jobs in a
// worktree.
func TestWorktreeOfReadOnly(t *testing.T) {
	f, common := newWorktree(t, besides, "wt", "main/.git", func(c *Config) {
		c.Repos = append(c.Repos, Repo{Path: filepath.Dir(c.Commons[0]), ReadOnly: true})
	})
	if d := f.git(job.Direct, 0, "echo >"+common+"/x || echo refused; echo >y && echo written"); d.out != "refused\nwritten\n" {
		t.Errorf("%q, %q", d.out, d.err)
	}
}

// TestWorktreeNotServed: a client that may not have jobs in the git directory has them in the worktree alone.
func TestWorktreeNotServed(t *testing.T) {
	const look = "git status; ls .git"
	f, common := newWorktree(t, besides, "wt", "main/.git", func(c *Config) { c.Commons = nil })
	if d := f.git(job.Direct, 0, look); !strings.Contains(d.err, "not a git repository: "+common) || d.out != ".git\n" {
		t.Errorf("%q, %q", d.out, d.err)
	}
	if d := f.git(job.Direct, 0, "ls -d "+filepath.Dir(common)); d.Status == job.Success {
		t.Errorf("it is there: %q", d.out)
	}
}

// TestServesCommon tests the decision itself.
func TestServesCommon(t *testing.T) {
	const stranger = 1002
	top := newRepo(t)
	for _, dir := range []string{"main", "main/.git", "other", "other/.git", "bare", "bare.git", "listed", "listed.git", "plain"} {
		mkdir(t, filepath.Join(top, dir), owner)
	}
	mkdir(t, top+"/theirs", stranger)
	if err := os.Symlink("main", top+"/link"); err != nil {
		t.Fatal(err)
	}
	operator := []Repo{{Path: top + "/main"}, {Path: top + "/listed"}, {Path: top + "/listed.git"}, {Path: top + "/theirs"}}
	peer, root := host.Peer{UID: owner}, host.Peer{Embedded: true}
	for _, tt := range []struct {
		name   string
		peer   host.Peer
		path   string
		opened string // "" is no descriptor
		own    bool
		want   string // in the error; "" if it is served
	}{
		{"listed", peer, "listed.git", "", false, ""},
		{"listed, opened", peer, "listed.git", "listed.git", false, ""},
		{"listed, and no git directory", peer, "listed", "", false, "not named .git"},
		{"listed, and no git directory, opened", peer, "listed", "listed", false, "not named .git"},
		{"listed, under another name", peer, "listed.git", "listed", false, "not named .git"},
		{"listed, and no git directory, own", peer, "listed", "listed", true, "not named .git"},
		{"listed and named by root", root, "listed", "", false, "not named .git"},
		{"of a listed one", peer, "main/.git", "", false, ""},
		{"of a listed one, opened", peer, "main/.git", "main/.git", false, ""},
		{"of a listed one, another opened", peer, "main/.git", "other/.git", false, "another directory"},
		{"somebody else's that is listed", peer, "theirs", "theirs", false, "not named .git"},
		{"of one that is not listed", peer, "other/.git", "other/.git", false, "does not serve"},
		{"own", peer, "other/.git", "other/.git", true, ""},
		{"own, by its path", peer, "other/.git", "", true, "does not serve"},
		{"own, bare", peer, "bare.git", "bare.git", true, ""},
		{"own, and no git directory", peer, "bare", "bare", true, "not named .git"},
		{"a stranger's", host.Peer{UID: stranger}, "other/.git", "other/.git", true, "belongs to user 1001"},
		{"named by root", root, "other/.git", "", false, ""},
		{"named by root, bare", root, "plain", "", false, ""},
		{"not named by root", root, "bare", "", false, "does not serve"},
		{"named by root, for somebody else", peer, "other/.git", "", false, "does not serve"},
		{"through a link", root, "link/.git", "", false, "does not serve"},
		{"not there", peer, "main/x", "", false, "does not serve"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := config(t)
			c.Own, c.Repos, c.Commons = tt.own, operator, []string{top + "/other/.git", top + "/plain", top + "/listed", top + "/gone"}
			if err := c.complete(); err != nil {
				t.Fatal(err)
			}
			var dir *os.File
			if tt.opened != "" {
				fd, err := unix.Open(filepath.Join(top, tt.opened), unix.O_PATH|unix.O_CLOEXEC, 0)
				if err != nil {
					t.Fatal(err)
				}
				dir = os.NewFile(uintptr(fd), tt.opened)
				defer dir.Close()
			}
			r, err := (&Supervisor{config: c, probes: &probe.Prober{}}).servesCommon(tt.peer, filepath.Join(top, tt.path), dir)
			if r != nil {
				r.close()
			}
			var refusal *job.Refusal
			if (tt.want == "") != (err == nil) || err != nil && (!errors.As(err, &refusal) || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// TestWorktreeSession: a session in a worktree has the git directory too; with an overlay, it is read-only.
func TestWorktreeSession(t *testing.T) {
	f, _ := newWorktree(t, besides, "wt", "main/.git", nil)
	for w, want := range map[job.Workspace]string{job.Direct: "committed\n", job.Overlay: "refused\n"} {
		ss, err := f.c.OpenSession(t.Context(), job.SessionSpec{Repo: f.repo, Workspace: w})
		if err != nil {
			t.Fatal(err)
		}
		spec := f.spec("sh", "-c", "git status -s && git -c user.name=a -c user.email=a commit -q --allow-empty -m x 2>/dev/null && echo committed || echo refused")
		spec.Session, spec.Workspace, spec.Env = ss.ID, w, append(slices.Clone(environment), "HOME=/home/job")
		if d := f.run(spec); d.out != want {
			t.Errorf("%v: %q, %q", w, d.out, d.err)
		}
		if _, err := f.c.CloseSession(t.Context(), ss.ID, false); err != nil {
			t.Error(err)
		}
	}
}
