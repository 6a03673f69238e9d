package server

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A readyReader waits with the runtime's poller until a file is readable, and then reads. A blocking read(2) would occupy a
// thread and, until sysmon retakes it, its P, for up to ten milliseconds while the process is idle: time that jobs need on
// machines with few cores.
//
// The file's flags stay unchanged: O_NONBLOCK would affect all processes that share the open file, such as the shell.
type readyReader struct {
	io.Reader
	poll *os.File // epoll(7) instance that watches the file
	raw  syscall.RawConn
}

// whenReady returns in as a readyReader, or in itself if it need not be waited for: not a file, a regular file, or one in
// non-blocking mode. The caller must call end.
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

// pollOf returns an epoll instance that watches file. It fails with EPERM for a regular file and EAGAIN for a non-blocking
// one.
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
		err = unix.SetNonblock(poll, true) // package os uses the runtime's poller only for non-blocking descriptors
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
		return n > 0 || err != nil // after an error, Read blocks in read(2)
	})
	if err != nil { // the file was closed, the only way to end the wait
		return 0, os.ErrClosed
	}
	return r.Reader.Read(p)
}
