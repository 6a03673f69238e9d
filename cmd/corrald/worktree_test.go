package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"corral/internal/test/sandboxtest"
)

// git runs a script with git as a user.
func git(t *testing.T, uid uint32, dir, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-euc", "umask 022\n"+script)
	cmd.Dir, cmd.Env = dir, append(gitEnvironment(), "PATH=/usr/bin:/bin", "HOME=/nonexistent")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return string(out)
}

func gitEnvironment() []string {
	return []string{
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org",
	}
}

// commits is a job that commits, and prints git's output.
func commits() []string {
	args := []string{"--"}
	for _, v := range gitEnvironment() {
		args = append([]string{"--env", v}, args...)
	}
	return append(args, "sh", "-c", "git commit -q --allow-empty -m two 2>&1 && git log --format=%s && git status -s")
}

// TestWorktrees: git works in worktrees, with a running supervisor and with one that root starts for a user of sudo. Git
// files that a job could have forged are not followed.
func TestWorktrees(t *testing.T) {
	sandboxtest.RequireJails(t, sandboxtest.Program("git"))
	const made = "git init -q -b main main; git -C main commit -q --allow-empty -m one; git -C main worktree add -q ../wt\n"
	const none = "not a git repository"
	d := serve(t)
	for _, tt := range []struct{ name, forged, want string }{
		{"worktree", "", "two\none\n"},
		{"relative", "echo gitdir: ../main/.git/worktrees/wt >wt/.git; echo ../../../../wt/.git >main/.git/worktrees/wt/gitdir", "two\none\n"},
		{"another worktree's", "git -C main worktree add -q ../other; cp other/.git wt/.git", none},
		{"no git directory", "mkdir -p secret/worktrees/wt; echo gitdir: $PWD/secret/worktrees/wt >wt/.git; echo $PWD/wt/.git >secret/worktrees/wt/gitdir; echo ../.. >secret/worktrees/wt/commondir", none},
		{"the host", "echo gitdir: /etc/worktrees/wt >wt/.git", none},
		{"by a link", "ln -s main/.git/worktrees/wt link; echo gitdir: $PWD/link >wt/.git", none},
		{"no back pointer", "rm main/.git/worktrees/wt/gitdir", none},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, own := range []bool{false, true} {
				top := makeDirectory(t, filepath.Join(sandboxtest.OpenDir(t), "alice"), alice, 0o755)
				git(t, alice, top, made+tt.forged)
				args := append([]string{"run", "--repo", top + "/wt"}, commits()...)
				got := runBy(t, d, own, args)
				if !strings.Contains(got, tt.want) {
					t.Errorf("own supervisor %v: %q, want %q", own, got, tt.want)
				}
				if strings.Contains(tt.want, "two") {
					if log := git(t, alice, top, "git -C main log --format=%s wt; find main ! -user 61234"); log != "two\none\n" {
						t.Errorf("own supervisor %v: outside: %q", own, log)
					}
				}
			}
		})
	}
}

// runBy runs corral for alice and returns what it prints: on her own supervisor, which sudo starts, or on d.
func runBy(t *testing.T, d *server, own bool, args []string) string {
	t.Helper()
	if own {
		return bySudo(t, alice, args)
	}
	_, out, errs := d.runs(alice, args...)
	return out + errs
}

// bySudo runs corral as root with the environment that sudo sets for a user.
func bySudo(t *testing.T, uid int, args []string) string {
	t.Helper()
	cmd := exec.Command(sandboxtest.Bin(t, "corral"), args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/bin:/bin", "SUDO_UID=" + strconv.Itoa(uid), "SUDO_GID=" + strconv.Itoa(uid)}
	out, _ := cmd.CombinedOutput() // the caller checks the output only
	return string(out)
}

// TestWorktreeOfAnother: if bob's git directory names a worktree of alice's, it is not served to her, like any other of
// his directories.
func TestWorktreeOfAnother(t *testing.T) {
	sandboxtest.RequireJails(t, sandboxtest.Program("git"))
	top := sandboxtest.OpenDir(t)
	bobs, hers := makeDirectory(t, top+"/bob", bob, 0o755), makeDirectory(t, top+"/alice", alice, 0o755)
	git(t, bob, bobs, "git init -q -b main main; git -C main commit -q --allow-empty -m one; git -C main worktree add -q ../wt")
	git(t, alice, hers, "mkdir wt; echo gitdir: "+bobs+"/main/.git/worktrees/wt >wt/.git")
	git(t, bob, bobs, "echo "+hers+"/wt/.git >main/.git/worktrees/wt/gitdir")
	args := append([]string{"run", "--repo", hers + "/wt"}, commits()...)
	const none = "not a git repository"
	if _, out, errs := serve(t).runs(alice, args...); !strings.Contains(out+errs, none) {
		t.Errorf("%q, %q", out, errs)
	}
	if got := bySudo(t, alice, args); !strings.Contains(got, none) {
		t.Errorf("own supervisor: %q", got)
	}
	// The operator can serve the git directory by its name. Serving the main checkout does not serve it to other users.
	if _, out, errs := serve(t, "--repo", hers+"/wt", "--repo", bobs+"/main").runs(alice, args...); !strings.Contains(out+errs, none) {
		t.Errorf("main checkout served: %q, %q", out, errs)
	}
	if _, out, errs := serve(t, "--repo", hers+"/wt", "--repo", bobs+"/main/.git").runs(alice, args...); !strings.Contains(out, "two\none\n") {
		t.Errorf("served: %q, %q", out, errs)
	}
}

// tidies is a job that has git tidy up, remove the worktree other, and make and remove worktrees of its own. It prints what git does
// not do as outside, and the entries of worktrees that are left.
const tidies = `entries=$(git rev-parse --git-common-dir)/worktrees
git worktree prune -v; git gc -q --prune=now || echo gc failed
git worktree remove -f -f ../other 2>/dev/null && echo removed
git worktree list --porcelain | grep prunable
ls ../other 2>/dev/null && echo it looks empty
git worktree add -q in/mine 2>/dev/null && git worktree remove in/mine || echo no worktree made
git worktree add -q in/gone 2>/dev/null && rm -r in/gone && git worktree prune
git branch -m other renamed && git commit -q --allow-empty -m two
ls $entries; ls $entries/other`

// TestOtherWorktrees: git in a job takes no other worktree for removed, wherever it is and whichever worktree the job is in. What the job
// makes of worktrees in its repository, it can remove.
func TestOtherWorktrees(t *testing.T) {
	sandboxtest.RequireJails(t, sandboxtest.Program("git"))
	const made = "git init -q -b main main; git -C main commit -q --allow-empty -m one; git -C main worktree add -q ../wt; git -C main worktree add -q ../other\n"
	args := []string{"--", "sh", "-c", tidies}
	for _, v := range gitEnvironment() {
		args = append([]string{"--env", v}, args...)
	}
	d := serve(t)
	for _, tt := range []struct {
		name, parent, repo string
		own                bool // by the supervisor that sudo starts
		options            []string
		session            []string // options of the session that it runs in
		branch             string   // of other, afterwards
	}{
		{"main checkout", os.TempDir(), "main", false, nil, nil, "renamed"},
		{"by sudo", os.TempDir(), "main", true, nil, nil, "renamed"},
		{"of a worktree", os.TempDir(), "wt", false, nil, nil, "renamed"},
		{"not in a private directory", "/srv", "main", false, nil, nil, "renamed"},
		{"of a worktree there", "/srv", "wt", false, nil, nil, "renamed"},
		{"protected hooks", os.TempDir(), "main", false, []string{"--protect", "hooks"}, nil, "renamed"},
		{"overlay", os.TempDir(), "main", false, []string{"--workspace", "overlay"}, nil, "other"},
		{"session", "/srv", "main", false, nil, []string{"--name", "plain"}, "renamed"},
		{"session with a root", os.TempDir(), "main", false, nil, []string{"--root", "--name", "root"}, "renamed"},
		{"session with a root, not in a private directory", "/srv", "wt", false, nil, []string{"--root", "--name", "other"}, "renamed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			top := makeDirectory(t, filepath.Join(sandboxtest.OpenDirIn(t, tt.parent), "alice"), alice, 0o755)
			git(t, alice, top, made)
			want := "other\nwt\n" + git(t, alice, top, "ls main/.git/worktrees/other")
			repo := filepath.Join(top, tt.repo)
			if tt.session != nil {
				tt.options = []string{"--session", d.opens(t, slices.Concat(tt.session, []string{"--repo", repo}))}
			}
			got := runBy(t, d, tt.own, slices.Concat([]string{"run", "--repo", repo}, tt.options, args))
			if !strings.HasPrefix(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
			if got := git(t, alice, top, "cd other; git status -s; git branch --show-current; git fsck 2>&1"); got != tt.branch+"\n" {
				t.Errorf("outside: %q", got)
			}
		})
	}
}

// opens opens a session of alice's and returns its id.
func (d *server) opens(t *testing.T, options []string) string {
	t.Helper()
	cmd := exec.Command(sandboxtest.Bin(t, "corral"), slices.Concat([]string{"session", "open", "--supervisor", d.Socket}, options)...)
	cmd.Env, cmd.Dir = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent"}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: alice, Gid: alice}}
	id, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(id))
}

// TestManyWorktrees: a repository may have hundreds of worktrees.
func TestManyWorktrees(t *testing.T) {
	sandboxtest.RequireJails(t, sandboxtest.Program("git"))
	d := serve(t)
	for _, parent := range []string{os.TempDir(), "/srv"} {
		top := makeDirectory(t, filepath.Join(sandboxtest.OpenDirIn(t, parent), "alice"), alice, 0o755)
		git(t, alice, top, `git init -q -b main main; git -C main commit -q --allow-empty -m one; top=$PWD; cd main/.git
			mkdir worktrees $(seq -f worktrees/w%.0f 300) $(seq -f ../../w%.0f 300); for i in $(seq 300); do
			echo ref: refs/heads/w$i >worktrees/w$i/HEAD; echo ../.. >worktrees/w$i/commondir; echo $top/w$i/.git >worktrees/w$i/gitdir
			echo gitdir: $PWD/worktrees/w$i >../../w$i/.git; done`)
		if _, out, errs := d.runs(alice, "run", "--repo", top+"/main", "--", "sh", "-c", "git worktree prune; ls .git/worktrees | wc -l"); out != "300\n" {
			t.Errorf("%s: %q: %s", parent, out, errs)
		}
	}
}

// TestSubmodule: git works in a submodule, whose git directory is that of the repository around it, and in a repository whose git
// directory is elsewhere and names it.
func TestSubmodule(t *testing.T) {
	sandboxtest.RequireJails(t, sandboxtest.Program("git"))
	d := serve(t)
	for name, made := range map[string]string{
		"submodule": "git init -q src; git -C src commit -q --allow-empty -m one; git init -q -b main main; " +
			"git -c protocol.file.allow=always -C main submodule --quiet add $PWD/src sub; git -C main commit -qm sub",
		"separate": "mkdir main; git init -q --separate-git-dir=$PWD/x.git main/sub; " +
			"git -C main/sub config core.worktree $PWD/main/sub; git -C main/sub commit -q --allow-empty -m one",
	} {
		t.Run(name, func(t *testing.T) {
			for _, own := range []bool{false, true} {
				top := makeDirectory(t, filepath.Join(sandboxtest.OpenDir(t), "alice"), alice, 0o755)
				git(t, alice, top, made)
				args := append([]string{"run", "--repo", top + "/main/sub"}, commits()...)
				got := runBy(t, d, own, args)
				if got != "two\none\n" {
					t.Errorf("own supervisor %v: %q", own, got)
				}
				if log := git(t, alice, top, "git -C main/sub log --format=%s; find . ! -user 61234"); log != "two\none\n" {
					t.Errorf("own supervisor %v: outside: %q", own, log)
				}
			}
		})
	}
}
