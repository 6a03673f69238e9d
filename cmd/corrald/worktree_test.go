package main

import (
	"os/exec"
	"path/filepath"
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
