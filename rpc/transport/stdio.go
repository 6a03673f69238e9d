package transport

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"corral/rpc"
)

// stdio is a connection of lines over two files that may be blocking, and are somebody else's too: neither can be made
// non-blocking, and to close them would end no read. So the reads and writes are two goroutines', which are left behind in
// them when the connection is closed.
type stdio struct {
	texts chan text   // what was read
	line  chan []byte // to be written, to who writes
	wrote chan error  // and back: it was
	buf   []byte

	ended chan struct{}
	once  sync.Once
	gone  io.Closer // of who waits for the end of the output's readers
}

type text struct {
	data []byte
	err  error
}

// Stdio returns the connection of who writes lines to in and reads lines from out. It ends when nobody reads out any more,
// though nothing is written. in and out are not closed by it: that is for the end of the process, which must be near when
// the connection is closed.
func Stdio(in, out *os.File) (rpc.Conn, error) {
	s := &stdio{texts: make(chan text), line: make(chan []byte), wrote: make(chan error), ended: make(chan struct{})}
	// A pipe of its own has the wait end with the connection.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.gone = w
	go s.read(newLineReader(in, rpc.MaxMessage))
	go s.write(out)
	go s.watch(out, r)
	return s, nil
}

func (s *stdio) read(in *lineReader) {
	for {
		data, err := in.next()
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

// watch ends the connection when nobody can read out any more: poll(2) tells of POLLERR and POLLHUP without being asked to.
func (s *stdio) watch(out, wake *os.File) {
	defer wake.Close()
	raw, err := out.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // whose error is that of a closed file
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

// Write implements rpc.Conn. What is written is a copy: a write that is left behind has it still.
func (s *stdio) Write(data []byte) error {
	select {
	case <-s.ended:
		return errClosed
	default:
	}
	s.buf = withEnd(s.buf, data)
	select {
	case s.line <- s.buf:
	case <-s.ended:
		return errClosed
	}
	select {
	case err := <-s.wrote:
		if cap(s.buf) > keptBuffer {
			s.buf = nil
		}
		return err
	case <-s.ended:
		return errClosed
	}
}

// Close implements rpc.Conn.
func (s *stdio) Close() error {
	s.once.Do(func() {
		close(s.ended)
		_ = s.gone.Close()
	})
	return nil
}
