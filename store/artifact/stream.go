package artifact

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/redact"
)

const (
	// grace is how long after a job's end its pipes may be held open by processes that are not of the job.
	grace = 50 * time.Millisecond
	// largePipe is the capacity that a pipe gets once it was full, to reduce context switches between writer and
	// reader.
	largePipe = 256 << 10
	// fullPipe is the largest pipe of an ordinary user (/proc/sys/fs/pipe-max-size).
	fullPipe = 1 << 20
	readSize = 64 << 10
)

// A stream reads one of a job's pipes.
type stream struct {
	pipe  *os.File
	total *atomic.Int64 // bytes read
	hide  *redact.Stream
	view  *lineReader
	keep  *spool   // nil: the stream is not stored
	whole *whole   // nil: the stream is not shown completely
	shown []byte   // owned by the reading goroutine until done is closed
	ends  *margins // nil: its ends are not shown
	live  *Feed    // nil: nobody can follow it
	early ahead    // of live
	// passed is the number of bytes after redaction. Owned by the reading goroutine until done is closed.
	passed int64
	stored sealed // owned by the reading goroutine until done is closed
	failed error  // of storing; owned by the reading goroutine until done is closed
	done   chan struct{}
}

// open creates the pipe, starts reading it, and returns the job's end.
func (s *stream) open() (*os.File, error) {
	var p [2]int
	// os.Pipe would make the job's end non-blocking, too, which programs do not expect of their output.
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	if _, err := unix.FcntlInt(uintptr(p[0]), unix.F_SETFL, unix.O_NONBLOCK); err != nil { // a new pipe has no other flags
		unix.Close(p[0])
		unix.Close(p[1])
		return nil, os.NewSyscallError("fcntl", err)
	}
	s.pipe = os.NewFile(uintptr(p[0]), "|0")
	s.done = make(chan struct{})
	go s.read()
	return os.NewFile(uintptr(p[1]), "|1"), nil
}

// buffers are the input and output of redaction.
type buffers struct{ in, out, pending []byte }

func (s *stream) read() {
	defer close(s.done)
	b := &buffers{in: make([]byte, 4<<10)}
	for {
		n, err := s.pipe.Read(b.in)
		s.process(b, n)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.drain(b)
		}
		if err != nil {
			break
		}
		if n == len(b.in) && n < readSize {
			s.enlarge(b)
		}
	}
	s.out(s.hide.Append(b.out[:0], nil, true), nil)
	s.view.Close()
	s.pipe.Close()
	if s.keep != nil { // streams end before the job's result is known, so this delays nobody
		s.stored, s.failed = s.keep.Seal()
	}
}

// enlarge adapts buffer and pipe to a job that writes much.
func (s *stream) enlarge(b *buffers) {
	b.in = make([]byte, readSize)
	s.control(func(fd int) {
		if n, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0); err == nil && n < largePipe {
			_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, largePipe) // fails if the user has many pipes (pipe-user-pages-soft)
		}
	})
}

func (s *stream) control(f func(fd int)) {
	if c, err := s.pipe.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { f(int(fd)) })
	}
}

// drain reads what is buffered in the pipe without blocking, at most its capacity; a descendant may still hold the
// write end.
func (s *stream) drain(b *buffers) {
	s.control(func(fd int) {
		for left := fullPipe; left > 0; {
			n, err := unix.Read(fd, b.in[:min(left, len(b.in))])
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n <= 0 {
				return
			}
			s.process(b, n)
			left -= n
		}
	})
}

// process redacts and distributes n bytes of b.in.
func (s *stream) process(b *buffers, n int) {
	if n <= 0 {
		return
	}
	s.total.Add(int64(n))
	s.whole.count(n)
	b.out = s.hide.Append(b.out[:0], b.in[:n], false)
	b.pending = s.hide.Pending(b.pending[:0])
	s.out(b.out, b.pending)
}

// out distributes redacted output. pending is what views of the running job show after it.
func (s *stream) out(p, pending []byte) {
	s.passed += int64(len(p))
	if s.whole != nil && !s.whole.isOver() {
		s.shown = append(s.shown, p...)
	}
	s.ends.write(p, pending)
	if s.live != nil {
		s.live.Write(s.early.next(p, pending))
	}
	_, _ = s.view.Write(p) // never fails
	if s.keep != nil {
		s.keep.Write(p)
	}
}

// An ahead is what those who follow a job have seen of the text that was pending last.
type ahead []byte

// next returns what they get next: output, and what is pending after it, without what they have seen.
func (a *ahead) next(p, pending []byte) []byte {
	n := min(len(*a), len(p))
	if bytes.Equal((*a)[:n], p[:n]) {
		p, *a = p[n:], (*a)[n:]
	} else { // a secret began with it: its placeholder follows
		*a = nil
	}
	if !bytes.HasPrefix(pending, *a) {
		return p
	}
	news := slices.Concat(p, pending[len(*a):])
	*a = bytes.Clone(pending)
	return news
}

// finish waits until all writers have closed the pipe, or for at most d.
func (s *stream) finish(d time.Duration) {
	_ = s.pipe.SetReadDeadline(time.Now().Add(d)) // fails only if the pipe is already closed
	<-s.done
}
