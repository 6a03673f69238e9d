package server

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
	r   *bufio.Reader
	max int
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{bufio.NewReaderSize(r, 64<<10), limit}
}

// next returns the next line without its newline; the caller owns it. A line longer than max is skipped and returned as a
// *tooLongError. An unterminated last line is returned as well, before io.EOF.
func (l *lineReader) next() ([]byte, error) {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		if len(line)+len(part) > l.max+1 { // the newline is not counted
			return nil, l.skip(line, part, err)
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

// skip reads to the end of a line, keeping only the id.
func (l *lineReader) skip(line, part []byte, err error) error {
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

// findID returns the id of an invalid message, nil if it has none or parsers could disagree about it.
func findID(data []byte) json.RawMessage {
	var f idFinder
	f.feed(data)
	if f.depth != 0 || f.quoted {
		return nil
	}
	return f.id
}

// An idFinder finds the id of a message that is read in pieces and not kept, so that the error response can have it; clients
// often write the id last. It buffers the text at the outermost level since the last comma, and takes it for the id if it is
// a valid one and the only one.
type idFinder struct {
	id            json.RawMessage
	ids           int // number of ids seen
	depth         int
	quoted, after bool   // in a string; after a backslash in a string
	kept          []byte // text of the current member, at most 2*maxID+1 bytes
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
			f.keep(c) // so that "id":{ counts as an id, although an invalid one
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

// end evaluates a member at the comma or bracket after it.
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

// keyLikeID returns the key if some parser would take it for "id", else "". The length check excludes most keys: each of the
// two characters is at most six bytes long, as \u0069.
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
