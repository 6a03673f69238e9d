package relay

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Socket is a connection whose bytes the kernel may pass on by itself. Read and Write do what they do with the bytes, too.
type Socket interface {
	net.Conn
	syscall.Conn
	// Received counts n bytes of the socket, and returns how many of them may be passed on. If not all may be, the error says why.
	Received(n int) (within int, err error)
	// Sending counts n bytes that are about to be sent, and returns how many of them may be. If not all may be, the error says why.
	Sending(n int) (within int, err error)
	// Unsent takes back n bytes of Sending.
	Unsent(n int)
}

// Sizes of pipes.
const (
	// pipeSize is how many bytes are on their way at once. Of pipe-user-pages-soft, see pipe(7), all pipes take half.
	pipeSize = 1 << 20
	maxPipes = 32
)

// Files are the descriptors of all pipes.
const Files = 2 * maxPipes

// A pipePool has the pipes through which bytes are passed on. A connection has one only while it is busy.
type pipePool struct {
	mu   sync.Mutex
	free []*pipe // guarded by mu
	made int     // guarded by mu
}

var pipes pipePool

// A pipe is empty whenever it is not in use: bytes of one connection in it would be sent on another.
type pipe struct{ from, to int }

// take returns a pipe for give, nil if all are in use.
func (p *pipePool) take() *pipe {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		last := p.free[n-1]
		p.free = p.free[:n-1]
		return last
	}
	if p.made == maxPipes {
		return nil
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil
	}
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize) // a smaller one does, too
	p.made++
	return &pipe{fds[0], fds[1]}
}

// give returns a pipe with a number of bytes in it.
func (p *pipePool) give(used *pipe, left int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if left == 0 {
		p.free = append(p.free, used)
		return
	}
	p.made--
	unix.Close(used.from)
	unix.Close(used.to)
}

// A splicer passes bytes from one socket to another inside of the kernel, with splice(2): they are counted, and not read. It is not for
// concurrent use.
type splicer struct {
	from, to       Socket
	rawFrom, rawTo syscall.RawConn
}

// newSplicer returns a splicer, nil if not both connections are sockets.
func newSplicer(to, from net.Conn) *splicer {
	s := &splicer{}
	var ok bool
	if s.from, ok = from.(Socket); !ok {
		return nil
	}
	if s.to, ok = to.(Socket); !ok {
		return nil
	}
	var err error
	if s.rawFrom, err = s.from.SyscallConn(); err != nil {
		return nil
	}
	if s.rawTo, err = s.to.SyscallConn(); err != nil {
		return nil
	}
	return s
}

// passOn passes on what has arrived, until no more has, and calls active whenever something has. It may pass on nothing: a Read says why,
// such as an end or an error of reading, or has what is left.
func (s *splicer) passOn(active func()) error {
	p := pipes.take()
	if p == nil {
		return nil
	}
	left := 0 // bytes in the pipe
	defer func() { pipes.give(p, left) }()
	for {
		n := s.receive(p)
		if n <= 0 {
			return nil
		}
		active()
		left = n
		within, over := s.from.Received(n)
		if err := s.send(p, within, &left); err != nil {
			return err
		}
		if over != nil {
			return over
		}
		active()
	}
}

// receive moves into the pipe what has arrived, and returns how many bytes.
func (s *splicer) receive(p *pipe) (n int) {
	_ = s.rawFrom.Read(func(fd uintptr) bool {
		n = fill(int(fd), p)
		return true
	})
	return n
}

// send sends n bytes of the pipe. left is how many are in it.
func (s *splicer) send(p *pipe, n int, left *int) error {
	within, over := s.to.Sending(n)
	sent := 0
	var failed error
	err := s.rawTo.Write(func(fd uintptr) bool {
		for sent < within {
			m, err := unix.Splice(p.from, nil, int(fd), nil, within-sent, unix.SPLICE_F_NONBLOCK)
			switch {
			case errors.Is(err, unix.EINTR):
			case errors.Is(err, unix.EAGAIN):
				return false
			case err != nil:
				failed = os.NewSyscallError("splice", err)
				return true
			case m == 0:
				failed = io.ErrShortWrite
				return true
			default:
				sent += int(m)
			}
		}
		return true
	})
	*left -= sent
	if sent < within {
		s.to.Unsent(within - sent)
		return &net.OpError{Op: "write", Net: "tcp", Addr: s.to.RemoteAddr(), Err: errors.Join(err, failed)}
	}
	return over
}

// fill returns 0 or less if there is nothing to move.
func fill(socket int, p *pipe) int {
	for {
		n, err := unix.Splice(socket, nil, p.to, nil, pipeSize, unix.SPLICE_F_NONBLOCK)
		if !errors.Is(err, unix.EINTR) {
			return int(n)
		}
	}
}
