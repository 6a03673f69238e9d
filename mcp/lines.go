package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"corral/internal/strictjson"
)

// maxLine is how many bytes a client's message may have, over stdio as over HTTP.
const maxLine = 10 << 20

// A tooLongError is a line that was not read: it has gone by, and its id was picked out of it, if it had one.
type tooLongError struct {
	id  json.RawMessage
	max int
}

// Error says how long a line may be.
func (e *tooLongError) Error() string {
	return fmt.Sprintf("a message of more than %d MiB is not read", e.max>>20)
}

// A lineReader reads lines that are at most max bytes long.
type lineReader struct {
	r   *bufio.Reader
	max int
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{bufio.NewReaderSize(r, 64<<10), limit}
}

// next returns the next line without its end, the caller's to keep. A line that is too long is a *tooLongError, and the
// one after it is next. What is left at the end of the stream is a line, and io.EOF comes after it.
func (l *lineReader) next() ([]byte, error) {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		if len(line)+len(part) > l.max+1 { // the end of the line is not counted
			return nil, l.pass(line, part, err)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimRight(line, "\r\n"), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		default:
			return nil, err
		}
	}
}

// pass reads to the end of a line and keeps nothing but the id.
func (l *lineReader) pass(line, part []byte, err error) error {
	var f idFinder
	f.feed(line)
	f.feed(part)
	for errors.Is(err, bufio.ErrBufferFull) {
		part, err = l.r.ReadSlice('\n')
		f.feed(part)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return &tooLongError{f.id, l.max}
}

// findID returns the id of a message with a fault, nil when it has none or may be read in two ways.
func findID(data []byte) json.RawMessage {
	var f idFinder
	f.feed(data)
	if f.depth != 0 || f.quoted {
		return nil
	}
	return f.id
}

// An idFinder finds the id of a message that goes by in pieces, for an answer to go to: clients write it last. It keeps
// what stands at the outermost level since the last comma, and takes it for the id if it reads so, and nothing else does.
type idFinder struct {
	id            json.RawMessage
	ids           int // how many there are
	depth         int
	quoted, after bool   // within a string; after a backslash in one
	kept          []byte // at most 2*maxID+1 of the outermost level
}

func (f *idFinder) feed(p []byte) {
	for _, c := range p {
		switch {
		case f.quoted:
			f.keep(c)
			f.quoted = f.after || c != '"'
			f.after = !f.after && c == '\\'
		case c == '"':
			f.quoted = true
			f.keep(c)
		case c == '{' || c == '[':
			f.keep(c) // "id":{ is an id, if none to answer to
			f.depth++
		case c == ',' || c == '}' || c == ']':
			f.end(c)
		default:
			f.keep(c)
		}
	}
}

func (f *idFinder) keep(c byte) {
	if f.depth == 1 && len(f.kept) <= 2*maxID {
		f.kept = append(f.kept, c)
	}
}

// end looks at what stood before a comma, or at the end of an object.
func (f *idFinder) end(c byte) {
	if f.depth == 1 {
		key, value, _ := bytes.Cut(f.kept, []byte{':'})
		if name := keyLikeID(bytes.TrimSpace(key)); name != "" {
			f.ids++
			f.id = nil
			if value = bytes.TrimSpace(value); f.ids == 1 && name == "id" && json.Valid(value) && utf8.Valid(value) {
				f.id = bytes.Clone(scalar(value))
			}
		}
		f.kept = f.kept[:0]
	}
	if c != ',' {
		f.depth--
	}
}

// keyLikeID returns a key that some reader would take for "id", else "". Most are none by their length: each of the two
// characters has at most six bytes, as \u0069.
func keyLikeID(key []byte) string {
	name := key
	if bytes.IndexByte(key, '\\') >= 0 && len(key) <= len(`"\u0069\u0064"`) && json.Valid(key) && key[0] == '"' {
		name = []byte(`"` + strictjson.Unquote(key) + `"`)
	}
	if !bytes.EqualFold(name, []byte(`"id"`)) {
		return ""
	}
	return string(name[1 : len(name)-1])
}
