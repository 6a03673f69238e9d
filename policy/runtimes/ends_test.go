package runtimes

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/job"
)

// TestEndsWithJob checks that code lies on a file system of the job, which disappears with the job, even if the
// supervisor is killed.
func TestEndsWithJob(t *testing.T) {
	b := newBench(t)
	code := "while :; do read line; done"
	mark := fmt.Sprintf("mark-%d", os.Getpid())
	input, hold := io.Pipe()
	done := make(chan error, 1)
	go func() {
		d, err := b.do(b.spec(try{runtime: "shell", code: &code, args: []string{mark}}), input)
		if err == nil || d.Status != job.Lost {
			err = fmt.Errorf("%+v, %w", d.Result, err)
		} else {
			err = nil
		}
		done <- err
	}()
	pid := processWith(t, mark)
	end, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(end)
	inside := fmt.Sprintf("/proc/%d/root%s/code.sh", pid, Dir)
	if got, err := os.ReadFile(inside); err != nil || string(got) != code {
		t.Errorf("in the job: %q, %v", got, err)
	}
	if got, _ := os.ReadFile(Dir + "/code.sh"); string(got) == code {
		t.Error("the host sees the code")
	}
	b.daemon.Kill()
	poll := []unix.PollFd{{Fd: int32(end), Events: unix.POLLIN}}
	n, err := 0, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) { // signals of the Go runtime
		n, err = unix.Poll(poll, int(seconds(20)/time.Millisecond))
	}
	if n != 1 || err != nil {
		t.Errorf("the job has not ended: %v", err)
	}
	_ = hold.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	// The last process of the mount namespace has ended; no other process was in it.
	if _, err := os.ReadFile(inside); err == nil {
		t.Error("the code still exists after the job")
	}
}

// processWith returns the id of the process whose last argument is mark.
func processWith(t *testing.T, mark string) int {
	t.Helper()
	for end := time.Now().Add(seconds(20)); time.Now().Before(end); time.Sleep(time.Millisecond) { // /proc has no events
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, f := range files {
			if line, err := os.ReadFile(f); err == nil && strings.HasSuffix(string(line), "\x00"+mark+"\x00") {
				var pid int
				if _, err := fmt.Sscanf(f, "/proc/%d/", &pid); err == nil {
					return pid
				}
			}
		}
	}
	t.Fatal("the job did not start")
	return 0
}
