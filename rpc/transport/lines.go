package transport

import (
	"bufio"
	"errors"
	"io"

	"corral/rpc"
)

// lineBuffer is what a reader of lines reads ahead.
const lineBuffer = 64 << 10

// keptBuffer is how large the buffer of one line may be that is kept for the next one.
const keptBuffer = 256 << 10

// A lineReader reads lines of at most max bytes.
type lineReader struct {
	r   *bufio.Reader
	max int
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{bufio.NewReaderSize(r, lineBuffer), limit}
}

// next returns the next line without its end, the caller's to keep. One that is too long is passed over, and is
// rpc.ErrTooLong. What is left at the end of the stream is a line, and io.EOF comes after it.
func (l *lineReader) next() ([]byte, error) {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		if err == nil {
			part = part[:len(part)-1]
		}
		if len(line)+len(part) > l.max {
			return nil, l.pass(err)
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

// pass reads to the end of a line, of which err ended the last part.
func (l *lineReader) pass(err error) error {
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = l.r.ReadSlice('\n')
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return rpc.ErrTooLong
}

// lines is a connection of lines over a stream whose Close ends its Read and Write.
type lines struct {
	*lineReader
	stream io.ReadWriteCloser
	line   []byte
}

func newLines(stream io.ReadWriteCloser) *lines {
	return &lines{lineReader: newLineReader(stream, rpc.MaxMessage), stream: stream}
}

// Read implements rpc.Conn.
func (l *lines) Read() ([]byte, error) { return l.next() }

// Write implements rpc.Conn.
func (l *lines) Write(text []byte) error {
	l.line = withEnd(l.line, text)
	_, err := l.stream.Write(l.line)
	if cap(l.line) > keptBuffer {
		l.line = nil
	}
	return err
}

// withEnd returns text as a line, in place of what is in line.
func withEnd(line, text []byte) []byte {
	return append(append(line[:0], text...), '\n')
}

// Close implements rpc.Conn.
func (l *lines) Close() error { return l.stream.Close() }
