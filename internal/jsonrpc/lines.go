package jsonrpc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// lineBuffer is the size of a LineReader's buffer in bytes.
const lineBuffer = 64 << 10

// ErrTooLong reports a line that was skipped because it is too long.
var ErrTooLong = errors.New("message too long")

// A LineReader reads lines of a bounded length.
type LineReader struct {
	r   *bufio.Reader
	max int
	// Hold, if not nil, is called before a line grows to n bytes, and with 0 when its memory is not needed any more, at the
	// next call of Next. An error ends the reading.
	Hold func(n int) error
	// Skipped, if not nil, is called with each piece of a line that is too long, in their order. The last one has the newline.
	Skipped func(piece []byte)
}

// NewLineReader returns a reader of lines that have at most limit bytes, without the newline.
func NewLineReader(r io.Reader, limit int) *LineReader {
	return &LineReader{r: bufio.NewReaderSize(r, lineBuffer), max: limit}
}

// Next returns the next line without its newline; the caller owns it. A line that is too long is skipped,
// for ErrTooLong. Text after the last newline counts as a line, before io.EOF.
func (l *LineReader) Next() ([]byte, error) {
	var line []byte
	if err := l.hold(0); err != nil {
		return nil, err
	}
	for {
		part, err := l.r.ReadSlice('\n')
		if len(line)+len(bytes.TrimSuffix(part, []byte{'\n'})) > l.max {
			return nil, l.skip(line, part, err)
		}
		if err := l.hold(len(line) + len(part)); err != nil {
			return nil, err
		}
		line = append(line, part...)
		switch {
		case err == nil, errors.Is(err, io.EOF) && len(line) > 0:
			return bytes.TrimSuffix(line, []byte{'\n'}), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

func (l *LineReader) hold(n int) error {
	if l.Hold == nil {
		return nil
	}
	return l.Hold(n)
}

// skip reads to the end of a line that begins with line and part. err is the error of reading part.
func (l *LineReader) skip(line, part []byte, err error) error {
	l.skipped(line)
	l.skipped(part)
	for errors.Is(err, bufio.ErrBufferFull) {
		part, err = l.r.ReadSlice('\n')
		l.skipped(part)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return ErrTooLong
}

func (l *LineReader) skipped(piece []byte) {
	if l.Skipped != nil {
		l.Skipped(piece)
	}
}
