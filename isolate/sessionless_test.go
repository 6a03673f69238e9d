package isolate

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/fronttest"
	"corral/internal/test/sandboxtest"
	"corral/isolate/host"
	"corral/job"
	"corral/policy/starlark"
)

// inOpt creates a directory in /opt, which every job sees, also if the machine has no /opt. The caller removes the
// directory.
func inOpt(t *testing.T) string {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root)
	if err := os.Mkdir("/opt", 0o755); err == nil {
		t.Cleanup(func() { _ = os.Remove("/opt") })
	} else if !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/opt", "corral-test-") //nolint:usetesting // every job sees /opt: that is what is tested
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestNoRepo: a job without a repository sees nothing of it, wherever the repository is, and works in a directory of
// its own.
func TestNoRepo(t *testing.T) {
	inOpt := inOpt(t)
	f := newFront(t)
	t.Cleanup(func() { _ = os.RemoveAll(inOpt) })
	if err := errors.Join(os.Chmod(inOpt, 0o755), os.Chown(inOpt, owner, owner)); err != nil {
		t.Fatal(err)
	}
	for name, repo := range map[string]string{"in a private directory": f.Repo, "in a system directory": inOpt} {
		f.Repo = repo
		put(t, filepath.Join(repo, "secret"), "secret\n", 0o644, owner)
		spec := f.Spec("sh", "-c", `pwd; ls -A "$1" 2>/dev/null; cat "$1/secret" 2>/dev/null; grep -c "$1" /proc/self/mountinfo
			echo mine >file && cat file; (echo x >"$1/made") 2>/dev/null || echo refused; ls /proc/self/cwd/`, "sh", repo)
		for _, profile := range []string{"", "strict"} {
			spec.Workspace, spec.Profile = job.NoRepo, profile
			spec.Limits.Disk = 1 // the limit applies to the repository only
			d := f.Run(spec)
			mounts := "0"
			if repo == inOpt {
				mounts = "1" // an empty mount over it
			}
			if want := "/tmp\n" + mounts + "\nmine\nrefused\nfile\n"; d.Out != want || d.Status != job.Success || d.Sensitive != nil {
				t.Errorf("%s: %q, %s%+v", name, d.Out, d.Err, d.Result)
			}
		}
		spec.Workspace, spec.Profile, spec.Limits.Disk = job.Direct, "", 0
		if d := f.Run(spec); !strings.HasPrefix(d.Out, repo+"\nsecret\nsecret\n1\n") { // the next job in the repository is not affected
			t.Errorf("%s, direct: %q %s", name, d.Out, d.Err)
		}
		if err := os.Remove(filepath.Join(repo, "made")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRepoInHome: a user of the host may have the name that jobs have. The job's home directory is its own all the
// same.
func TestRepoInHome(t *testing.T) {
	f := newFront(t)
	f.Repo = shownAt(t, f.Repo, "/home", "/home/job/projects/one")
	put(t, filepath.Join(f.Repo, "file"), "", 0o644, owner)
	spec := f.Spec("sh", "-c", `pwd; ls "$1"; stat -c "%U %a" /home/job; echo x >/home/job/mine; ls -A /home/job`, "sh", f.Repo)
	if d := f.Run(spec); d.Out != f.Repo+"\nfile\njob 700\nmine\nprojects\n" {
		t.Errorf("direct: %q %s%+v", d.Out, d.Err, d.Result)
	}
	spec.Workspace = job.NoRepo
	if d := f.Run(spec); d.Out != "/tmp\njob 700\nmine\n" {
		t.Errorf("without: %q %s%+v", d.Out, d.Err, d.Result)
	}
}

// TestNoRepoNotFound: if a repository that the jail shows cannot be found at its path, the job is refused and it is
// not assumed to be hidden.
func TestNoRepoNotFound(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Kernel(6, 3)) // tmpfs supports id maps
	top := inOpt(t)
	f := newFront(t)
	t.Cleanup(func() { _ = errors.Join(unix.Unmount(top, unix.MNT_DETACH), os.Remove(top)) })
	one, other := filepath.Join(top, "one"), filepath.Join(top, "other")
	// Mounts made later in it do not propagate to existing jails.
	if err := errors.Join(unix.Mount("test", top, "tmpfs", 0, "mode=0755"), unix.Mount("", top, "", unix.MS_PRIVATE, "")); err != nil {
		t.Fatal(err)
	}
	f.Repo = filepath.Join(one, "repo")
	mkdir(t, one, 0)
	mkdir(t, f.Repo, owner)
	spec := f.Spec("true")
	spec.Workspace = job.NoRepo
	if d := f.Run(spec); d.Status != job.Success {
		t.Fatalf("%s%+v", d.Err, d.Result)
	}
	// The same directory at the same path, for processes that see the mount.
	if err := os.Rename(one, other); err != nil {
		t.Fatal(err)
	}
	mkdir(t, one, 0)
	if err := unix.Mount(other, one, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	refusedAt(t, "not found", fronttest.Second(f.Try(spec)), "repo", unix.ENOENT)
}

// interprets returns a job that runs a Starlark program.
func (f *front) interprets(source string) job.Spec {
	const path = "/tmp/job/code.star"
	b := starlark.Bounds{Output: 1 << 10, Wall: 10 * time.Second, Memory: 128 << 20}
	return job.Spec{
		Repo: f.Repo, Tool: job.ToolStarlark, Workspace: job.NoRepo, Args: starlark.Arguments(b, path),
		Files: []job.File{{Path: path, Content: source}}, Limits: job.Limits{Memory: b.Memory, PIDs: 32, Tmp: 1 << 20, TmpInodes: 64, OpenFiles: 64},
	}
}

// TestStarlarkTool: the job runs corrald's own interpreter, whatever the jail, its Args and its environment have
// under that name, and not in a session.
func TestStarlarkTool(t *testing.T) {
	sandboxtest.Bin(t, host.StarlarkProgram)
	f := newFront(t)
	put(t, filepath.Join(f.Repo, "starlark"), "#!/bin/sh\necho fooled\n", 0o755, owner)
	spec := f.interprets(`emit(read_input().upper())`)
	spec.Env = []string{"PATH=" + f.Repo, "LD_PRELOAD=" + f.Repo + "/starlark", "GODEBUG=inittrace=1"}
	if d := f.Feed(spec, []byte("input")); d.Out != "INPUT" || d.Status != job.Success || d.Sensitive != nil {
		t.Errorf("%q, %q, %+v", d.Out, d.Err, d.Result)
	}
	d := f.Run(f.interprets("1 // 0"))
	failure := starlark.Ended(d.ExitCode, []byte(d.Err))
	if d.ExitCode != 1 || d.Out != "" || failure.Code != starlark.CodeEval || failure.Position == "" {
		t.Errorf("%q, %q, %+v", d.Out, d.Err, d.Result)
	}
	ss := f.Session(job.SessionSpec{})
	spec.Session = ss.ID
	refusedAt(t, "in a session", fronttest.Second(f.Try(spec)), "workspace", 0)
	spec.Workspace = job.Direct
	refusedAt(t, "in a session that writes", fronttest.Second(f.Try(spec)), "session", 0)
	spec = f.Spec("true")
	spec.Session, spec.Workspace = ss.ID, job.NoRepo
	refusedAt(t, "no repository, in a session", fronttest.Second(f.Try(spec)), "workspace", 0)
}

// TestWithoutStarlark: a supervisor without the interpreter runs all other jobs.
func TestWithoutStarlark(t *testing.T) {
	dir := t.TempDir()
	f := newFront(t, func(c *Config) {
		for _, name := range []string{"corral-init", "corral-stub", "corral-layer"} {
			if err := copyFile(filepath.Join(c.Programs, name), filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		c.Programs = dir
	})
	refusedAt(t, "not installed", fronttest.Second(f.Try(f.interprets(""))), "tool", 0)
	if out := f.Sh("echo still"); out != "still" {
		t.Errorf("%q", out)
	}
}

func copyFile(from, to string) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_CLOEXEC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close())
}
