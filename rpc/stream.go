package rpc

import (
	"encoding/base64"
	"errors"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	smallRead = 4 << 10
	largeRead = 64 << 10
	// largePipe is the capacity that a pipe gets once it was full: fewer changes between writer and reader.
	largePipe = 256 << 10
	// fullPipe is what the largest pipe of an ordinary user has (/proc/sys/fs/pipe-max-size).
	fullPipe = 1 << 20
)

// A stream reads one stream of a process, and passes it on or keeps it, up to the cap. What is more is read and dropped.
type stream struct {
	o     *output
	name  string
	file  *os.File
	tty   bool // file is a terminal, which somebody else closes
	total atomic.Int64
	done  chan struct{} // closed when the reader has returned

	// Of the reader, then of who has waited for it.
	left   int64  // bytes that may still be passed on
	cut    bool   // something was dropped
	cutOff bool   // the end was not seen: somebody who is not of the job holds the pipe
	mute   bool   // nobody wants to know
	kept   []byte // what is not streamed
	held   int    // bytes of it, in the server's budget
	head   []byte // of each delta
}

func newStream(o *output, name string, file *os.File, tty bool) *stream {
	s := &stream{o: o, name: name, file: file, tty: tty, left: o.p.cap, done: make(chan struct{})}
	f := o.p.family
	s.mute = !o.p.c.wants(f.output)
	s.head = []byte(`{"method":"` + f.output + `","params":{"` + f.id + `":` + quoted(o.p.id) + `,"stream":"` + name + `","deltaBase64":"`)
	return s
}

func (s *stream) read() {
	defer close(s.done)
	b := make([]byte, smallRead)
	for {
		n, err := s.file.Read(b)
		s.take(b[:max(n, 0)])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.cutOff = s.rest(b)
		}
		if err != nil {
			break
		}
		if n == len(b) && n < largeRead {
			b = s.enlarge()
		}
	}
	if !s.tty {
		s.file.Close()
	}
}

// enlarge is for a stream that writes much.
func (s *stream) enlarge() []byte {
	control(s.file, func(fd int) {
		if n, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0); err == nil && n < largePipe {
			_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, largePipe) // the user's pipes may be many already
		}
	})
	return make([]byte, largeRead)
}

// rest takes what is there when nobody is waited for any more, at most what fits into a pipe. It reports whether the end
// was not among it.
func (s *stream) rest(b []byte) (more bool) {
	more = true
	for left := fullPipe; left > 0; {
		n, err := -1, error(nil)
		// The descriptor is not held while the client is waited for.
		control(s.file, func(fd int) { n, err = unix.Read(fd, b[:min(left, len(b))]) })
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case n == 0 || errors.Is(err, unix.EIO): // EIO is a terminal's end
			return false
		case n < 0:
			return more
		}
		s.take(b[:n])
		left -= n
	}
	return more
}

// take is for what was read.
func (s *stream) take(b []byte) {
	if len(b) == 0 {
		return
	}
	s.total.Add(int64(len(b)))
	over := int64(len(b)) > s.left
	if over {
		b = b[:s.left]
	}
	s.left -= int64(len(b))
	switch {
	case s.cut: // all has been said
	case s.o.p.stream:
		s.send(b, over)
	default:
		s.keep(b)
	}
	s.cut = s.cut || over
}

// send passes bytes on, as soon as the client has room for them.
func (s *stream) send(b []byte, last bool) {
	s.o.p.announce()
	if s.mute {
		return
	}
	out := s.o.p.c.out
	text := append(out.buffer(), s.head...)
	text = base64.StdEncoding.AppendEncode(text, b)
	if last {
		text = append(text, `","capReached":true}}`...)
	} else {
		text = append(text, `","capReached":false}}`...)
	}
	if !out.delta(text) {
		s.mute = true
	}
}

// keep keeps bytes for the answer. Without room for them the process is ended, for the answer could not be given.
func (s *stream) keep(b []byte) {
	p := s.o.p
	if s.o.overflow.Load() {
		return
	}
	if !p.c.s.hold(len(b)) {
		s.o.overflow.Store(true)
		p.cancel(errBudget)
		return
	}
	s.held += len(b)
	s.kept = append(s.kept, b...)
}
