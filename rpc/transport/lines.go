package transport

import (
	"io"
	"iter"

	"corral/internal/jsonrpc"
	"corral/rpc"
)

// keptBuffer is the maximum capacity of a write buffer that is reused for the next line.
const keptBuffer = 256 << 10

// lineConn is a connection of lines over a stream whose Close unblocks Read and Write.
type lineConn struct {
	*jsonrpc.LineReader
	stream io.ReadWriteCloser
	line   []byte
}

func newLines(stream io.ReadWriteCloser, in *share) *lineConn {
	l := jsonrpc.NewLineReader(stream, rpc.MaxMessage)
	l.Hold = in.hold
	return &lineConn{LineReader: l, stream: stream}
}

// Read implements rpc.Conn.
func (l *lineConn) Read() ([]byte, error) { return l.Next() }

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
