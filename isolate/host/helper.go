package host

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Reap waits for the exit of a child.
func Reap(pid int) {
	for {
		if _, err := syscall.Wait4(pid, nil, 0, nil); !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// SlotPatience is the timeout of each wait for an answer from inside a jail. What answers does nothing but system
// calls: the timeout is far above what a loaded machine needs, so that only a broken one exceeds it.
const SlotPatience = 20 * time.Second

// StubMessage is a buffer size in bytes that holds any report; it is small because many slots wait for one.
const StubMessage = 256

// AwaitEnd blocks until a child of this process has exited, without reaping it. wait4(2) alone would block a thread
// for each jail. If the kernel or the poller does not support it, it returns at once.
func AwaitEnd(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	pidfd, err := Pollable(os.NewFile(uintptr(fd), "pidfd"))
	if err != nil {
		return
	}
	defer pidfd.Close()
	if raw, err := pidfd.SyscallConn(); err == nil {
		_ = raw.Read(Readable)
	}
}
