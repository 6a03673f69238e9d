package transport

import (
	"bufio"
	"errors"
	"io"
	"iter"

	"corral/rpc"
)

// lineBuffer is the size of a line reader's buffer.
const lineBuffer = 64 << 10

// keptBuffer is the maximum capacity of a write buffer that is reused for the next line.
const keptBuffer = 256 << 10

// A lineReader reads lines of at most max bytes.
type lineReader struct {
	r   *bufio.Reader
	max int
	in  *share // nil: the memory is the client's own
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, lineBuffer), max: limit}
}

// next returns the next line without its newline; the caller owns it. It skips a line that is too long and returns
// rpc.ErrTooLong. Data after the last newline counts as a line and is followed by io.EOF. The memory of a line stays
// counted until the next call.
func (l *lineReader) next() ([]byte, error) {
	var line []byte
	l.in.release()
	for {
		part, err := l.r.ReadSlice('\n')
		if err == nil {
			part = part[:len(part)-1]
		}
		if len(line)+len(part) > l.max {
			return nil, l.skip(err)
		}
		if err := l.in.hold(len(line) + len(part)); err != nil {
			return nil, err
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		default:
			return nil, err
		}
	}
}

// skip reads up to the end of a line that is too long. err is the error of reading its last part.
func (l *lineReader) skip(err error) error {
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = l.r.ReadSlice('\n')
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return rpc.ErrTooLong
}

// lineConn is a connection of lines over a stream whose Close unblocks Read and Write.
type lineConn struct {
	*lineReader
	stream io.ReadWriteCloser
	line   []byte
}

func newLines(stream io.ReadWriteCloser, in *share) *lineConn {
	l := newLineReader(stream, rpc.MaxMessage)
	l.in = in
	return &lineConn{lineReader: l, stream: stream}
}

// Read implements rpc.Conn.
func (l *lineConn) Read() ([]byte, error) { return l.next() }

// Write implements rpc.Conn.
func (l *lineConn) Write(text []byte) error {
	l.line = withNewline(l.line, text)
	_, err := l.stream.Write(l.line)
	if cap(l.line) > keptBuffer {
		l.line = nil
	}
	return err
}

// WritePieces implements rpc.Conn.
func (l *lineConn) WritePieces(pieces iter.Seq[[]byte]) error {
	for p := range pieces {
		if _, err := l.stream.Write(p); err != nil {
			return err
		}
	}
	_, err := l.stream.Write([]byte{'\n'})
	return err
}

// withNewline returns text plus a newline in the memory of line, if it fits.
func withNewline(line, text []byte) []byte {
	return append(append(line[:0], text...), '\n')
}

// Close implements rpc.Conn.
func (l *lineConn) Close() error { return l.stream.Close() }
