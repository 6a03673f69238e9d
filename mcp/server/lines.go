package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"corral/internal/jsonrpc"
)

// maxLine is the maximum length of a client's message in bytes, over stdio and HTTP.
const maxLine = 10 << 20

// A tooLongError reports a line that was skipped. id is the message's id, if one was found.
type tooLongError struct {
	id  json.RawMessage
	max int
}

// Error returns a message with the maximum.
func (e *tooLongError) Error() string {
	return fmt.Sprintf("the message is longer than %d MiB, the maximum", e.max>>20)
}

// A lineReader reads lines that are at most max bytes long.
type lineReader struct {
	*jsonrpc.LineReader
	max int
	id  *jsonrpc.IDFinder // of the line that is being skipped
}

func newLineReader(r io.Reader, limit int) *lineReader {
	l := &lineReader{LineReader: jsonrpc.NewLineReader(r, limit), max: limit}
	l.Skipped = func(piece []byte) { l.id.Feed(piece) }
	return l
}

// next returns the next line. A line longer than max is skipped and returned as a *tooLongError.
func (l *lineReader) next() ([]byte, error) {
	l.id = &jsonrpc.IDFinder{Dialect: dialect}
	line, err := l.Next()
	if errors.Is(err, jsonrpc.ErrTooLong) {
		return nil, &tooLongError{l.id.ID, l.max}
	}
	return line, err
}
