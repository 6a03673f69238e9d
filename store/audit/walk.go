package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// A lineReader reads lines of bounded length.
type lineReader struct{ r *bufio.Reader }

// newLineReader returns a reader of the lines of r.
func newLineReader(r io.Reader) *lineReader { return &lineReader{bufio.NewReaderSize(r, MaxLine)} }

// Next returns a line without its newline, valid until the next call, or io.EOF. A line that is too long, or the last
// one without a newline, is returned in part, with whole = false. n is the number of bytes read.
func (l *lineReader) Next() (line []byte, whole bool, n int64, err error) {
	line, err = l.r.ReadSlice('\n')
	n = int64(len(line))
	switch {
	case err == nil:
		return line[:n-1], true, n, nil
	case errors.Is(err, io.EOF) && n > 0:
		return line, false, n, nil
	case !errors.Is(err, bufio.ErrBufferFull):
		return nil, false, 0, err
	}
	line = line[:80:80]
	for errors.Is(err, bufio.ErrBufferFull) {
		var more []byte
		more, err = l.r.ReadSlice('\n')
		n += int64(len(more))
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return line, false, n, err
}

// A flaw is a line that does not continue the audit log.
type flaw struct {
	Last   bool // torn, without a newline: it may still be being written
	Torn   bool // not a record; otherwise a record that does not follow the previous one
	First  fixedFields
	After  Position // the position after it, if its own seq is believed
	Behind int64    // bytes of the file up to its end
}

// walk reads the records after at, through all files, and calls f for each that continues the audit log. It stops at the
// end of the audit log, or at the first flaw. open opens a file by the seq of its first record; the error is
// os.ErrNotExist if there is none.
func walk(open func(first uint64) (*os.File, error), at Position, f func(fixedFields)) (Position, *flaw, error) {
	for {
		file, err := open(at.File)
		if errors.Is(err, os.ErrNotExist) && at.Size == 0 {
			return at, nil, nil
		}
		if err != nil {
			return at, nil, fmt.Errorf("audit: %w", err)
		}
		next, flawed, err := walkFile(file, at, f)
		file.Close()
		if flawed != nil || err != nil || next.File == at.File {
			return next, flawed, err
		}
		at = next
	}
}

func walkFile(file *os.File, at Position, f func(fixedFields)) (Position, *flaw, error) {
	name := at.File
	if info, err := file.Stat(); err == nil && info.Size() == at.Size { // common case: avoids allocating a buffer
		return at, nil, nil
	}
	l := newLineReader(io.NewSectionReader(file, at.Size, 1<<62))
	for at.File == name {
		line, whole, n, err := l.Next()
		if errors.Is(err, io.EOF) {
			return at, nil, nil
		}
		if err != nil {
			return at, nil, fmt.Errorf("audit: %w", err)
		}
		first, ok := parseLine(line)
		if !whole || !ok {
			return at, &flaw{
				Torn: true, Last: !whole && n < MaxLine, After: Position{at.Seq, at.Hash, at.File, at.Size + n},
				Behind: at.Size + n,
			}, nil
		}
		next := at.After(&first, line)
		if first.Seq != at.Seq+1 || first.Prev != at.Hash {
			return at, &flaw{First: first, After: next, Behind: at.Size + n}, nil
		}
		f(first)
		at = next
	}
	return at, nil, nil
}
