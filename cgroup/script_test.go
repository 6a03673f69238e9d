package cgroup

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// script starts a shell script in the groups of a job, with files from descriptor 3 on.
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
