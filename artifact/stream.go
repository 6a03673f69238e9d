package artifact

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// grace is how long, after a job's end, its pipes may still have a writer that is not of the job.
	grace = 50 * time.Millisecond
	// largePipe is the capacity that a pipe gets once it was full: fewer changes between writer and reader.
	largePipe = 256 << 10
	// fullPipe is what the largest pipe of an ordinary user has (/proc/sys/fs/pipe-max-size).
	fullPipe = 1 << 20
	readSize = 64 << 10
)

// A stream reads one of a job's pipes.
type stream struct {
	pipe  *os.File
	total *atomic.Int64 // bytes read
	hide  *redactor
	view  *lineReader
	keep  *spool   // nil: it is not stored
	whole *whole   // nil: it is not shown as it is
	shown []byte   // of who reads, until done
	ends  *margins // nil: nothing of it is shown that way
	// passed is how many bytes were shown, or stored: those after redaction. Of who reads, until done.
	passed int64
	stored seal // of who reads, until done
	done   chan struct{}
}

// open makes the pipe, starts to read it, and returns the job's end.
func (s *stream) open() (*os.File, error) {
	var p [2]int
	// Not os.Pipe: it would make the job's end non-blocking, too, which programs do not expect of their output.
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	if _, err := unix.FcntlInt(uintptr(p[0]), unix.F_SETFL, unix.O_NONBLOCK); err != nil { // a pipe has no other flags yet
		unix.Close(p[0])
		unix.Close(p[1])
		return nil, os.NewSyscallError("fcntl", err)
	}
	s.pipe = os.NewFile(uintptr(p[0]), "|0")
	s.done = make(chan struct{})
	go s.read()
	return os.NewFile(uintptr(p[1]), "|1"), nil
}

// buffers are what a stream reads into and what redaction writes to.
type buffers struct{ in, out []byte }

func (s *stream) read() {
	defer close(s.done)
	b := &buffers{in: make([]byte, 4<<10)}
	for {
		n, err := s.pipe.Read(b.in)
		s.take(b, n)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.rest(b)
		}
		if err != nil {
			break
		}
		if n == len(b.in) && n < readSize {
			s.enlarge(b)
		}
	}
	s.out(s.hide.write(b.out[:0], nil, true))
	s.view.close()
	s.pipe.Close()
	if s.keep != nil { // a job's streams end before it is known what became of it, so this is in nobody's way
		s.stored = s.seal()
	}
}

// enlarge is for a stream that writes much.
func (s *stream) enlarge(b *buffers) {
	b.in = make([]byte, readSize)
	s.control(func(fd int) {
		if n, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0); err == nil && n < largePipe {
			_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, largePipe) // the user's pipes may be many already
		}
	})
}

func (s *stream) control(f func(fd int)) {
	if c, err := s.pipe.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { f(int(fd)) })
	}
}

// rest takes what is in the pipe when nobody is waited for any more, at most what fits into it.
func (s *stream) rest(b *buffers) {
	s.control(func(fd int) {
		for left := fullPipe; left > 0; {
			n, err := unix.Read(fd, b.in[:min(left, len(b.in))])
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n <= 0 {
				return
			}
			s.take(b, n)
			left -= n
		}
	})
}

// take is for n bytes that were read.
func (s *stream) take(b *buffers, n int) {
	if n <= 0 {
		return
	}
	s.total.Add(int64(n))
	s.whole.count(n)
	b.out = s.hide.write(b.out[:0], b.in[:n], false)
	s.out(b.out)
}

// out takes what may be shown.
func (s *stream) out(p []byte) {
	s.passed += int64(len(p))
	if s.whole != nil && !s.whole.isOver() {
		s.shown = append(s.shown, p...)
	}
	s.ends.write(p)
	s.view.write(p)
	if s.keep != nil {
		s.keep.write(p)
	}
}

// finish waits for the end of the stream: until who holds the pipe has closed it, or d from now.
func (s *stream) finish(d time.Duration) {
	_ = s.pipe.SetReadDeadline(time.Now().Add(d)) // an error is of a pipe that is closed
	<-s.done
}

// seal is what becomes of a stream in an artifact.
type seal struct {
	sealed
	gap  *gap
	size int64 // of its file, in bytes; -1: who wants to know looks
	err  error
}

// seal ends the storing.
func (s *stream) seal() seal {
	r := seal{gap: s.keep.end(), size: -1}
	var short []byte
	if r.sealed, short, r.err = s.keep.finish(); r.err != nil || short == nil {
		return r
	}
	f, err := s.keep.file()
	if err == nil {
		_, err = f.Write(short)
	}
	r.size, r.err = int64(len(short)), err
	return r
}
