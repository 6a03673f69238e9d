package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// front runs the program, and returns its exit code and output.
func front(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(sandboxtest.Bin(t, "corral-front"), args...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// TestNotRoot checks that the program has dropped root when it writes for the first time: the write blocks on a full
// pipe.
func TestNotRoot(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	for name, args := range map[string][]string{
		"version": {"version"}, "help": {"help"}, "config": {"config", "show"}, "doctor": {"doctor", "--help"},
		"policy": {"policy", "--help"}, "completion": {"completion", "bash"},
	} {
		t.Run(name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			fill(t, w)
			cmd := exec.Command(sandboxtest.Bin(t, "corral-front"), args...)
			cmd.Stdout = w
			cmd.Env = []string{"SUDO_UID=54321", "SUDO_GID=54322"}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			w.Close()
			// /proc has to be polled.
			sandboxtest.Eventually(t, time.Minute, "the program is at its first write", func() bool {
				// write(2) is 1 on amd64 and 64 on arm64. Any thread of the process may call it.
				threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", cmd.Process.Pid))
				return slices.ContainsFunc(threads, func(path string) bool {
					call, _ := os.ReadFile(path)
					return strings.HasPrefix(string(call), fmt.Sprintf("%d 0x1 ", unix.SYS_WRITE))
				})
			})
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
			for _, want := range []string{"Uid:\t54321\t54321\t54321\t54321\n", "Gid:\t54322\t54322\t54322\t54322\n", "Groups:\t \n", "NoNewPrivs:\t1\n"} {
				if err != nil || !strings.Contains(string(status), want) {
					t.Errorf("%v, no %q in %s", err, want, status)
				}
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
}

// fill fills a pipe.
func fill(t *testing.T, w *os.File) {
	t.Helper()
	size, err := unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0)
	if err == nil {
		_, err = w.Write(make([]byte, size))
	}
	if err != nil {
		t.Fatal(err)
	}
}
