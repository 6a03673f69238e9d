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

// pollable returns f anew, so that the runtime's poller can wait for it.
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

// pidOf returns the process id, here, of the process a pidfd stands for (proc_pid_fdinfo(5)).
func pidOf(pidfd *os.File) (int, error) {
	conn, err := pidfd.SyscallConn() // Fd would take it from the poller
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
	var b [512]byte // some seven short lines
	n, err := unix.Read(f, b[:])
	if err != nil {
		return 0, fmt.Errorf("fdinfo of a pidfd: %w", err)
	}
	for line := range strings.Lines(string(b[:n])) {
		if value, ok := strings.CutPrefix(line, "Pid:"); ok {
			pid, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil || pid <= 0 {
				return 0, errors.New("the stub ended at once")
			}
			return pid, nil
		}
	}
	return 0, errors.New("no Pid in a pidfd's fdinfo")
}

// awaitEnd blocks until a child of this process has ended, which is still to be waited for: wait4(2) alone would keep a
// thread for each jail that stands. Where that cannot be, it returns at once.
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

// wait blocks until every process of the slot is gone: the stub is process 1 of their PID namespace, which the kernel
// empties before it lets go of the stub.
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

// readable says whether there is something to read.
func readable(fd uintptr) bool {
	n, err := poll(fd)
	return n > 0 && err == nil
}

// poll is poll(2) for reading, which does not wait. It is asked again when it is interrupted: nobody else would, for the
// runtime's poller tells of a change once.
func poll(fd uintptr) (n int, err error) {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err = unix.Poll(p, 0)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Poll(p, 0)
	}
	return n, err
}

// lives says whether a job can have the slot: the kernel may have ended its stub when the host had no memory left.
func (sl *slot) lives() bool {
	if sl.spoilt.Load() {
		return false
	}
	return !somethingToRead(sl.pidfd)
}
