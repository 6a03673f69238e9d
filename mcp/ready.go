package mcp

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A readyReader reads a file when there is something to be read in it, and is parked until then. A read that blocks would
// keep a thread and, for the runtime's first ten milliseconds, its processor: the jobs' own time, where there are few.
//
// The file stays as it is: O_NONBLOCK would be set for all who have it open, a shell for one.
type readyReader struct {
	io.Reader
	poll *os.File // an epoll(7) that has the file
	raw  syscall.RawConn
}

// whenReady returns in as a readyReader, or as it is where there is nothing to wait for: no file, a regular one, or one
// that does not block.
func whenReady(in io.Reader) (r io.Reader, end func()) {
	file, ok := in.(*os.File)
	if !ok {
		return in, func() {}
	}
	poll, err := pollOf(file)
	if err != nil {
		return in, func() {}
	}
	raw, err := poll.SyscallConn()
	if err != nil {
		poll.Close()
		return in, func() {}
	}
	return &readyReader{in, poll, raw}, func() { poll.Close() }
}

// pollOf returns an epoll that waits for file. Errors: EPERM of a regular file, EAGAIN of one that does not block.
func pollOf(file *os.File) (*os.File, error) {
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	controlled := conn.Control(func(fd uintptr) {
		var flags int
		if flags, err = unix.FcntlInt(fd, unix.F_GETFL, 0); err == nil && flags&unix.O_NONBLOCK != 0 {
			err = unix.EAGAIN
		}
		if err == nil {
			err = unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: unix.EPOLLIN})
		}
	})
	if err == nil {
		err = controlled
	}
	if err == nil {
		err = unix.SetNonblock(poll, true) // by which package os knows what the runtime can wait for
	}
	if err != nil {
		unix.Close(poll)
		return nil, err
	}
	return os.NewFile(uintptr(poll), "epoll"), nil
}

// Read implements io.Reader.
func (r *readyReader) Read(p []byte) (int, error) {
	err := r.raw.Read(func(fd uintptr) bool {
		var events [1]unix.EpollEvent
		n, err := unix.EpollWait(int(fd), events[:], 0)
		return n > 0 || err != nil // with an error the read waits
	})
	if err != nil { // nothing else ends the wait
		return 0, os.ErrClosed
	}
	return r.Reader.Read(p)
}
