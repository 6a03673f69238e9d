package meter

import (
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestEntriesIn counts the files that a call waits for, of calls that do and of others.
func TestEntriesIn(t *testing.T) {
	for current, want := range map[string]int64{
		"running\n":           0,
		"-1 0x7ffc4 0x7f2c\n": 0,
		"271 0x7ffc4 0xfa0 0x0 0x0 0x8 0x0 0x7ffc4 0x7f2c\n":        4000, // ppoll
		"270 0x400 0x7ffc4 0x7ffc4 0x0 0x0 0x0 0x7ffc4 0x7f2c\n":    1024, // pselect6
		"7 0x7ffc4 0x10 0xffffffff 0x0 0x0 0x0 0x7ffc4 0x7f2c\n":    16,   // poll
		"23 0x20 0x7ffc4 0x0 0x0 0x0 0x0 0x7ffc4 0x7f2c\n":          32,   // select
		"219 0x7ffc4 0x1000 0x0 0x0 0x0 0x0 0x7ffc4 0x7f2c\n":       4096, // restart_syscall, of poll
		"219 0x7ffc4 0x189 0x0 0x0 0x0 0x0 0x7ffc4 0x7f2c\n":        0,    // restart_syscall, of futex
		"219 0x7ffc4 0x7ffc4ab000 0x0 0x0 0x0 0x0 0x7ffc4 0x7f2c\n": 0,    // restart_syscall, of nanosleep
		"202 0x7ffc4 0x80 0x0 0x0 0x0 0x0 0x7ffc4 0x7f2c\n":         0,    // futex
	} {
		if n := entriesIn(current); n != want && runtime.GOARCH == "amd64" {
			t.Errorf("%q: %d, want %d", current, n, want)
		}
	}
}

// TestWaitBytes: a thread that waits for many files makes the group hold too much.
func TestWaitBytes(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	const entries = 1000
	ended := make(chan error, 1)
	go func() {
		fds := make([]unix.PollFd, entries)
		for i := range fds {
			fds[i] = unix.PollFd{Fd: int32(r.Fd()), Events: unix.POLLIN}
		}
		_, err := unix.Poll(fds, -1)
		ended <- err
	}()
	var n int64
	for end := time.Now().Add(time.Minute); n < entries*entryBytes && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if n, err = waitBytes([]int{os.Getpid()}, 1000); err != nil {
			t.Fatal(err)
		}
	}
	if n < entries*entryBytes || n > 2*entries*entryBytes {
		t.Errorf("%d bytes, want %d", n, entries*entryBytes)
	}
	w.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
