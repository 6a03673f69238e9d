package isolate

import (
	"os"
	"path/filepath"
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
