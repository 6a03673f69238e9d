package host

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Pollable closes f and returns a duplicate for which the runtime's poller can wait.
func Pollable(f *os.File) (*os.File, error) {
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

// PidOf returns the process id, in the supervisor's PID namespace, of a pidfd's process (proc_pid_fdinfo(5)).
func PidOf(pidfd *os.File) (int, error) {
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

// Readable reports whether there is something to read.
func Readable(fd uintptr) bool {
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

// SomethingToRead reports whether f is readable or cannot be polled.
func SomethingToRead(f *os.File) bool {
	conn, err := f.SyscallConn()
	if err != nil {
		return true
	}
	some := true
	err = conn.Control(func(fd uintptr) {
		n, err := poll(fd)
		some = err != nil || n != 0
	})
	return some || err != nil
}

// QueuedDescriptors reports whether a socket, given by its file in fdinfo, holds descriptors that were sent and not received. A
// listening socket includes those of connections that were not accepted. known is false on kernels before 5.6 (scm_fds of
// unix_show_fdinfo in net/unix/af_unix.c).
func QueuedDescriptors(info string) (queued, known bool, err error) {
	f, err := os.Open(info)
	if err != nil {
		return false, false, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if n, found := strings.CutPrefix(lines.Text(), "scm_fds:"); found {
			return strings.TrimSpace(n) != "0", true, nil
		}
	}
	return false, false, lines.Err()
}
