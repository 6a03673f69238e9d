package isolate

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// pollable closes f and returns a duplicate for which the runtime's poller can wait.
func pollable(f *os.File) (*os.File, error) {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// pidOf returns the process id, in the supervisor's PID namespace, of a pidfd's process (proc_pid_fdinfo(5)).
func pidOf(pidfd *os.File) (int, error) {
	conn, err := pidfd.SyscallConn() // Fd would remove it from the poller
	if err != nil {
		return 0, err
	}
	var path string
	if err := conn.Control(func(fd uintptr) { path = fmt.Sprintf("/proc/self/fdinfo/%d", fd) }); err != nil {
		return 0, err
	}
	f, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("fdinfo of a pidfd: %w", err)
	}
	defer unix.Close(f)
	var b [512]byte // about seven short lines
	n, err := unix.Read(f, b[:])
	if err != nil {
		return 0, fmt.Errorf("fdinfo of a pidfd: %w", err)
	}
	for line := range strings.Lines(string(b[:n])) {
		if value, ok := strings.CutPrefix(line, "Pid:"); ok {
			pid, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil || pid <= 0 {
				return 0, errors.New("the stub has already exited")
			}
			return pid, nil
		}
	}
	return 0, errors.New("no Pid in a pidfd's fdinfo")
}

// awaitEnd blocks until a child of this process has exited, without reaping it. wait4(2) alone would block a thread
// for each jail. If the kernel or the poller does not support it, it returns at once.
func awaitEnd(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	pidfd, err := pollable(os.NewFile(uintptr(fd), "pidfd"))
	if err != nil {
		return
	}
	defer pidfd.Close()
	if raw, err := pidfd.SyscallConn(); err == nil {
		_ = raw.Read(readable)
	}
}

// wait blocks until every process of the slot has exited: the stub is process 1 of their PID namespace, and the
// kernel reports its exit only when the namespace is empty.
func (sl *slot) wait(patience time.Duration) error {
	raw, err := sl.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	if err := sl.pidfd.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return fmt.Errorf("pidfd: %w", err)
	}
	return raw.Read(readable)
}

// readable reports whether there is something to read.
func readable(fd uintptr) bool {
	n, err := poll(fd)
	return n > 0 && err == nil
}

// poll is a non-blocking poll(2) for reading. It retries on EINTR, because the runtime's poller reports each change
// only once and nothing else would poll again.
func poll(fd uintptr) (n int, err error) {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err = unix.Poll(p, 0)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Poll(p, 0)
	}
	return n, err
}

// usable reports whether a job can have the slot. When the host ran out of memory, the kernel may have killed its
// stub.
func (sl *slot) usable() bool {
	if sl.oomBeforeJob.Load() {
		return false
	}
	return !somethingToRead(sl.pidfd)
}
