package cgroup

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLeft: what a job without processes has left is found where others hold it, apart from what the kernel can reclaim.
func TestLeft(t *testing.T) {
	const size = 4 << 20
	everywhere(t, func(t *testing.T, s setting) {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		held, theirs := os.NewFile(uintptr(pair[0]), "socket"), os.NewFile(uintptr(pair[1]), "socket")
		defer held.Close()
		if err := unix.SetsockoptInt(pair[1], unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4*size); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.MemfdCreate("left", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		memory := os.NewFile(uintptr(fd), "memory file")
		defer memory.Close()
		dir := t.TempDir()
		g := newJob(t, newJail(t, newInstance(t, s)), "job", Limits{})
		runScript(t, g, []*os.File{theirs, memory}, `head -c 4194304 /dev/zero >&3; head -c 4194304 /dev/zero >&4; cd "$0"; seq 2000 | xargs touch`, dir)
		theirs.Close()
		of := func() Left {
			l, err := g.Left()
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		reclaim := func() {
			d, err := os.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if err := unix.Syncfs(int(d.Fd())); err != nil {
				t.Fatal(err)
			}
			if err := g.Reclaim(); err != nil {
				t.Fatal(err)
			}
		}
		const files = 1 << 20 // at least for the entries of 2,000 files in the kernel's caches
		before := of()
		if before.Shared < size || before.Shared > 2*size || before.Other < size+files {
			t.Errorf("a socket with %d bytes, a memory file with as many, 2,000 files: %+v", size, before)
		}
		until(t, "files reclaimed", func() bool { reclaim(); return of().Other < before.Other-files })
		if l := of(); l.Shared < size || l.Other < size {
			t.Errorf("a socket and a memory file, each with %d bytes: %+v", size, l)
		}
		held.Close()
		until(t, "memory free that was in a socket", func() bool { reclaim(); return of().Other < size/4 })
		memory.Close()
		until(t, "memory free that was in a memory file", func() bool { return of().Shared < size/4 })
	})
}

// runScript runs a shell script in the groups of a job, with files from descriptor 3 on.
func runScript(t *testing.T, g *Job, files []*os.File, text string, args ...string) {
	t.Helper()
	if err := script(t, g, files, text, args...).Wait(); err != nil {
		t.Fatal(err)
	}
}

// script is runScript without a wait.
func script(t *testing.T, g *Job, files []*os.File, text string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", "read -r line && { " + text + "; }"}, args...)...)
	cmd.ExtraFiles = files
	if g.Dir() >= 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: g.Dir()}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Attach(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "go\n"); err != nil {
		t.Fatal(err)
	}
	return cmd
}
