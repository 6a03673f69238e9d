package transport

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"corral/internal/jsonrpc"
	"corral/rpc"
)

// stdio is a connection of lines over two files that may be blocking and may be shared with other processes. So they
// cannot be made non-blocking, and closing them would not end a read. Reads and writes are therefore done by two
// goroutines, which stay blocked in them after the connection is closed.
type stdio struct {
	texts chan text   // lines read
	line  chan []byte // line to be written, sent to the write goroutine
	wrote chan error  // result of the write
	buf   []byte

	ended chan struct{}
	once  sync.Once
	waker io.Closer // wakes watch
}

type text struct {
	data []byte
	err  error
}

// Stdio returns a connection that reads lines from in and writes lines to out. The connection ends when out has no
// readers left, even if nothing is written. It does not close in and out. Since its goroutines may outlive Close, the
// process should exit soon after.
func Stdio(in, out *os.File) (rpc.Conn, error) {
	s := &stdio{texts: make(chan text), line: make(chan []byte), wrote: make(chan error), ended: make(chan struct{})}
	// Closing the write end of this pipe wakes watch when the connection is closed.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.waker = w
	go s.read(jsonrpc.NewLineReader(in, rpc.MaxMessage))
	go s.write(out)
	go s.watch(out, r)
	return s, nil
}

func (s *stdio) read(in *jsonrpc.LineReader) {
	for {
		data, err := in.Next()
		select {
		case s.texts <- text{data, err}:
		case <-s.ended:
			return
		}
		if err != nil && !errors.Is(err, rpc.ErrTooLong) {
			return
		}
	}
}

func (s *stdio) write(out *os.File) {
	for {
		select {
		case line := <-s.line:
			_, err := out.Write(line)
			select {
			case s.wrote <- err:
			case <-s.ended:
			}
		case <-s.ended:
			return
		}
	}
}

// watch closes the connection when out has no readers left. poll(2) reports POLLERR and POLLHUP even if no event is
// requested.
func (s *stdio) watch(out, wake *os.File) {
	defer wake.Close()
	raw, err := out.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // fails only if the file is closed
		list := []unix.PollFd{{Fd: int32(fd)}, {Fd: int32(wake.Fd())}}
		for {
			if _, err := unix.Poll(list, -1); !errors.Is(err, unix.EINTR) {
				break
			}
		}
	})
	_ = s.Close()
}

// Read implements rpc.Conn.
func (s *stdio) Read() ([]byte, error) {
	select {
	case t := <-s.texts:
		return t.data, t.err
	case <-s.ended:
		return nil, errClosed
	}
}

var errClosed = fmt.Errorf("the client is gone: %w", os.ErrClosed)

// Write implements rpc.Conn. It writes a copy, since a write goroutine that outlives the connection still uses it.
func (s *stdio) Write(data []byte) error {
	s.buf = withNewline(s.buf, data)
	return s.writeBuffer()
}

// WritePieces implements rpc.Conn.
func (s *stdio) WritePieces(pieces iter.Seq[[]byte]) error {
	for p := range pieces {
		s.buf = append(s.buf[:0], p...)
		if err := s.writeBuffer(); err != nil {
			return err
		}
	}
	s.buf = append(s.buf[:0], '\n')
	return s.writeBuffer()
}

// writeBuffer has s.buf written. If the connection ends meanwhile, it gives the buffer up: the write goroutine still uses it.
func (s *stdio) writeBuffer() error {
	select {
	case <-s.ended:
		s.buf = nil
		return errClosed
	default:
	}
	select {
	case s.line <- s.buf:
	case <-s.ended:
		s.buf = nil
		return errClosed
	}
	select {
	case err := <-s.wrote:
		if cap(s.buf) > keptBuffer {
			s.buf = nil
		}
		return err
	case <-s.ended:
		s.buf = nil
		return errClosed
	}
}

// Close implements rpc.Conn.
func (s *stdio) Close() error {
	s.once.Do(func() {
		close(s.ended)
		_ = s.waker.Close()
	})
	return nil
}
