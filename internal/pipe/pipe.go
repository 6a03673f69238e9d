// Package pipe connects a process to a job: with pipes, and by reading what the job writes.
package pipe

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// The ends of a pipe.
const (
	Reads  = 0
	Writes = 1
)

// New returns the two ends of a pipe: this process keeps end, Reads or Writes, and a job gets the other one.
func New(end int) (kept, job *os.File, err error) {
	var p [2]int
	// Not os.Pipe: it would make the job's end non-blocking as well, which programs do not expect.
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	_, _ = unix.FcntlInt(uintptr(p[end]), unix.F_SETFL, unix.O_NONBLOCK) // a new pipe is open, and has no other flags
	return os.NewFile(uintptr(p[end]), "|"), os.NewFile(uintptr(p[1-end]), "|"), nil
}

const (
	// Most jobs write little, or nothing. A full buffer grows by the factor of growth, up to LargeRead.
	smallRead, growth = 1 << 10, 8
	// LargeRead is the maximum number of bytes that are read at once.
	LargeRead = 64 << 10
	// Large is the capacity that a pipe gets once it was full, to switch less often between writer and reader.
	Large = 256 << 10
	// maxPipe is the default maximum capacity of a pipe of an unprivileged user (/proc/sys/fs/pipe-max-size).
	maxPipe = 1 << 20
)

// Read calls take with what is read from f, a pipe or a terminal, to its end, or until f has reached its deadline: then with what is in
// f, and more reports that the end was not reached, because a process that is not of the job holds the pipe open. take must not keep what
// it gets, and may block.
func Read(f *os.File, take func(p []byte)) (more bool) {
	b := make([]byte, smallRead)
	for {
		n, err := f.Read(b)
		take(b[:max(n, 0)])
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return drain(f, b, take)
		case err != nil:
			return false
		case n == len(b) && n < LargeRead:
			if b = make([]byte, growth*n); len(b) == LargeRead {
				enlarge(f)
			}
		}
	}
}

// Head returns a channel that gets the beginning of what is read from f, at most that many bytes, when Read has returned. f is closed then.
func Head(f *os.File, most int) <-chan string {
	head := make(chan string, 1)
	go func() {
		defer f.Close()
		var kept []byte
		Read(f, func(p []byte) { kept = append(kept, p[:min(len(p), most-len(kept))]...) })
		head <- string(kept)
	}()
	return head
}

func enlarge(f *os.File) {
	Control(f, func(fd int) {
		if n, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0); err == nil && n < Large {
			_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, Large) // fails if the user has many pipes (pipe-user-pages-soft)
		}
	})
}

// drain reads what is buffered without blocking, at most the capacity of a pipe.
func drain(f *os.File, b []byte, take func(p []byte)) (more bool) {
	for left := maxPipe; left > 0; {
		n, err := -1, error(nil)
		// take may block; the descriptor must not be held that long.
		Control(f, func(fd int) { n, err = unix.Read(fd, b[:min(left, len(b))]) })
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case n == 0 || errors.Is(err, unix.EIO): // read(2) of a terminal's master fails with EIO at the end
			return false
		case n < 0:
			return true
		}
		take(b[:n])
		left -= n
	}
	return true
}

// Control calls f with the descriptor of a file that is open.
func Control(file *os.File, f func(fd int)) {
	if c, err := file.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { f(int(fd)) })
	}
}
