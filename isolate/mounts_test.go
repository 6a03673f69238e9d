package isolate

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"corral/job"
)

// TestMountsBelowRepository checks that jobs do not write beneath a file system that is mounted below the repository, which they do
// not see: in every workspace, with protected paths too, and also if it was mounted while the jail was there.
func TestMountsBelowRepository(t *testing.T) {
	f := newFront(t, func(*Config) {})
	at := filepath.Join(f.Repo, "data")
	shell(t, f.Repo, "mkdir -p data .git/hooks")
	const script = "cat data/* 2>/dev/null; echo x >data/made || echo refused; rmdir data 2>/dev/null || echo kept; echo y >other"
	try := func(want string) {
		t.Helper()
		for _, p := range []job.Protection{job.ProtectNone, job.ProtectHooks} {
			spec := f.Spec("sh", "-c", script)
			spec.Protect = p
			if d := f.Run(spec); d.Out != want {
				t.Errorf("protect %v: %q, %q", p, d.Out, d.Err)
			}
		}
		if d := f.In(f.Session(job.SessionSpec{Workspace: job.Overlay}), script); d.Out != want {
			t.Errorf("overlay: %q, %q", d.Out, d.Err)
		}
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "seen"), []byte("seen\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	try("refused\nkept\n")
	if err := unix.Unmount(at, 0); err != nil {
		t.Fatal(err)
	}
	if exists(at + "/made") {
		t.Error("a job has written beneath the mount")
	}
	if d := f.Run(f.Spec("sh", "-c", "echo x >data/made; cat data/made")); d.Out != "x\n" {
		t.Errorf("without the mount: %q, %q", d.Out, d.Err)
	}
}

// mounted mounts a file system for the test.
func mounted(t *testing.T, at string) {
	t.Helper()
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, 0) })
}

// TestMountsNamed: the first result of a jail names the mounts below the repository, and again when there are others. They keep a job
// from nothing else.
func TestMountsNamed(t *testing.T) {
	f := newFront(t)
	shell(t, f.Repo, "mkdir -p data a/cache free")
	mounted(t, filepath.Join(f.Repo, "data"))
	named := func(d did, want ...string) {
		t.Helper()
		if !slices.Equal(d.Mounts, want) || d.ExitCode != 0 {
			t.Errorf("%q, want %q: %+v %s", d.Mounts, want, d.Result, d.Err)
		}
	}
	change := f.Spec("sh", "-c", "chmod 777 free && mv a b && mv b a")
	named(f.Run(change), "data")
	named(f.Run(change))
	mounted(t, filepath.Join(f.Repo, "a/cache"))
	named(f.Run(change), "data", "a/cache")
	named(f.Run(change))
	ss := f.Session(job.SessionSpec{Workspace: job.Overlay})
	f.changes(ss) // a job of corral itself, not of its user
	named(f.In(ss, "true"), "data", "a/cache")
	named(f.In(ss, "true"))
}

// TestMountsMoved: a job that renames a directory above a mount point does not let a later job write beneath the mount, or end it by
// removing the directory that it is mounted on.
func TestMountsMoved(t *testing.T) {
	f := newFront(t)
	shell(t, f.Repo, "mkdir -p x/m")
	mounted(t, filepath.Join(f.Repo, "x/m"))
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(f.Repo, "y/m"), 0) })
	for _, script := range []string{
		"true",
		"mv x y && mkdir -p x/m; echo x >y/m/made || echo refused; rmdir y/m || echo kept",
		"echo x >y/m/made || echo refused; rmdir y/m || echo kept",
	} {
		d := f.Run(f.Spec("sh", "-c", script))
		if script != "true" && d.Out != "refused\nkept\n" {
			t.Errorf("%s: %q, %q", script, d.Out, d.Err)
		}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(filepath.Join(f.Repo, "y/m"), &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		t.Errorf("the file system is not mounted any more: %#x, %v", fs.Type, err)
	}
}
