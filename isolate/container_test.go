package isolate

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestNewInContainer: a supervisor can start as the only process of a container whose cgroup was delegated to nobody:
// it moves itself into a subgroup so that controllers can be enabled. With another process in the cgroup it fails,
// because that is not its own to move.
func TestNewInContainer(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.CgroupV2)
	supervise(t) // enables the controllers below the root
	if out, err := contained(t, newGroup(t)); err != nil {
		t.Errorf("alone: %s, %v", out, err)
	}
	group := newGroup(t)
	other := exec.Command("sleep", "1000")
	dir, err := os.Open(group)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	other.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	out, err := contained(t, group)
	_ = other.Process.Kill()
	_ = other.Wait()
	if err == nil || !strings.Contains(out, "cannot enable controllers") {
		t.Errorf("with another process: %q, %v", out, err)
	}
}

// newGroup creates a cgroup for the test.
func newGroup(t *testing.T) string {
	t.Helper()
	group := filepath.Join(sandboxtest.Unified(), config(t).Instance)
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		eventually(t, func() string {
			_ = exec.Command("find", group, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";").Run()
			if exists(group) {
				return group + " is left"
			}
			return ""
		})
	})
	return group
}

// contained starts and ends a supervisor in a cgroup namespace rooted at group, with a mount namespace in which only
// this hierarchy is mounted.
func contained(t *testing.T, group string) (said string, err error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const script = `echo $$ >"$0/cgroup.procs"
		exec unshare --cgroup --mount sh -ec 'umount -l "$1"; mount -t cgroup2 none "$1"; exec "$0"' "$1" "$2"`
	cmd := exec.Command("sh", "-ec", script, group, self, sandboxtest.Unified())
	cmd.Env = childEnv("contained", config(t))
	out, err := cmd.CombinedOutput()
	return string(out), err
}
