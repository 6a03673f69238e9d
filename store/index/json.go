package index

import (
	"bytes"
	"strconv"
	"strings"
)

const (
	enoughJSON = 2 << 10      // a chunk of this many bytes ends at the next value that is no deeper than any other in it
	minJSON    = maxChunk / 4 // minimum size of a chunk that is cut at a shallower value rather than at a deeper one
	fewJSON    = 512          // if no cut leaves at least this, the chunk is cut like a long line
)

// jsonText makes chunks of consecutive values, and cuts where values are least nested. From the value in which the
// scanner finds malformed JSON, it continues as plain text.
type jsonText struct {
	s     *splitter
	scan  jsonScanner
	n     int64 // number of the line in which the chunk starts
	later bool  // the chunk starts after the beginning of the line
	start chunkStart
}

// A chunkStart describes the value that a chunk starts with.
type chunkStart struct {
	parent      string // its path
	name        string // of the value in its parent: [12] or .error
	depth       int
	index       int64 // in an array
	serial      int   // of the array; 0 if there is none
	namePending bool  // the name has not been read yet
	records     int   // number of values of the stream before it
}

func newJSONText(s *splitter) *jsonText { return &jsonText{s: s, n: 1, start: chunkStart{parent: "$"}} }

// take cuts chunks from the start of b, where a chunk starts.
func (j *jsonText) take(b []byte, end bool) (int, error) {
	at := 0
	for {
		rest := b[at:]
		n, done := 0, false
		var err error
		switch j.scan.next(rest[:min(len(rest), maxChunk)]) {
		case newValue:
			if j.enough(rest) {
				n, err = j.cut(rest, j.scan.top)
			}
		case newKey:
			if j.start.namePending {
				j.start.namePending, j.start.name = false, j.scan.name(j.start.depth-1)
			}
		case broken:
			n, err = j.leave(rest)
			done = true
		case exhausted:
			switch {
			case len(rest) > maxChunk:
				n, err = j.overflow(rest)
			case end:
				n, err = len(rest), j.emit(rest, -1)
				done = true
			default:
				done = true
			}
		}
		if err != nil {
			return at, err
		}
		at += n
		if done {
			return at, nil
		}
	}
}

// enough reports whether to end the chunk at the mark that was just set.
func (j *jsonText) enough(b []byte) bool {
	d := j.scan.top
	size := j.scan.marks[d]
	if d == 0 && size > 0 && bytes.Count(b[:size], []byte{'\n'}) >= groupLines {
		return true
	}
	if size < enoughJSON {
		return false
	}
	for _, m := range j.scan.marks[:d] {
		if m >= minJSON {
			return false
		}
	}
	return true
}

// overflow cuts a chunk that has reached its maximum size.
func (j *jsonText) overflow(b []byte) (int, error) {
	for d, m := range j.scan.marks[:j.scan.top+1] {
		if m >= minJSON {
			return j.cut(b, d)
		}
	}
	if j.scan.marks[j.scan.top] >= fewJSON {
		return j.cut(b, j.scan.top)
	}
	cut, next := divide(b)
	if err := j.emit(b[:cut], -1); err != nil {
		return 0, err
	}
	d := len(j.scan.frames)
	if d > 0 && !j.scan.frames[d-1].array && !j.scan.frames[d-1].named {
		d--
	}
	j.move(b, next, d)
	j.start.serial = 0
	return next, nil
}

// cut ends the chunk at the mark of depth d.
func (j *jsonText) cut(b []byte, d int) (int, error) {
	n := j.scan.marks[d]
	if err := j.emit(b[:n], d); err != nil {
		return 0, err
	}
	j.move(b, n, d)
	return n, nil
}

// move starts the next chunk n bytes later, with a value of depth d.
func (j *jsonText) move(b []byte, n, d int) {
	j.n += int64(bytes.Count(b[:n], []byte{'\n'}))
	j.later = n > 0 && b[n-1] != '\n'
	j.start = chunkStart{parent: "$", depth: d, records: j.scan.values}
	if d > 0 {
		f := &j.scan.frames[:d][d-1]
		j.start.parent = j.scan.path(d - 1)
		if f.array {
			j.start.index, j.start.serial = f.index, f.serial
		}
		if j.start.namePending = !f.array && !f.named; !j.start.namePending {
			j.start.name = j.scan.name(d - 1)
		}
	}
	j.scan.shift(n)
}

// leave switches to plain text, starting with the open value of the stream.
func (j *jsonText) leave(b []byte) (int, error) {
	n := max(j.scan.marks[0], 0)
	if n > 0 {
		if err := j.emit(b[:n], 0); err != nil {
			return 0, err
		}
		j.move(b, n, 0)
	}
	j.s.plain(j.n, j.later)
	return n, nil
}

// emit emits the chunk. The next one starts at the mark of depth d, or if d is -1, at none.
func (j *jsonText) emit(b []byte, d int) error {
	p := &j.start
	title := p.parent + p.name
	if d == p.depth && p.serial > 0 {
		if f := &j.scan.frames[:d][d-1]; f.serial == p.serial && f.index-1 > p.index {
			title = p.parent + "[" + strconv.FormatInt(p.index, 10) + ".." + strconv.FormatInt(f.index-1, 10) + "]"
		}
	}
	if p.depth == 0 && (p.records > 0 || j.scan.values > 1) {
		title = ""
		if j.s.o.Title == "" {
			title = recordTitle(b)
		}
	}
	if len(title) > maxTitle {
		title = "$…" + strings.ToValidUTF8(title[len(title)-(maxTitle-len("$…")):], "")
	}
	return j.s.chunk(b, j.n, title, Code)
}

// messages are the keys whose values describe a record best, the best first.
var messageKeys = [...]string{`"message"`, `"msg"`, `"error"`, `"event"`}

// recordTitle returns the message of the first record that has one, or "".
func recordTitle(b []byte) string {
	for _, m := range messageKeys {
		i := bytes.Index(b, []byte(m))
		if i < 0 {
			continue
		}
		v := bytes.TrimLeft(b[i+len(m):], " :")
		if len(v) == 0 || v[0] != '"' {
			continue
		}
		v = v[1:]
		if end := bytes.IndexByte(v, '"'); end >= 0 {
			v = v[:end]
		}
		if t := shortenTitle(string(v[:min(len(v), 4*titleChars)]), titleChars); hasWord(t) {
			return t
		}
	}
	return ""
}

// path returns the path of the value that was started at a depth.
func (s *jsonScanner) path(depth int) string {
	var b strings.Builder
	b.WriteByte('$')
	for i := range depth {
		b.WriteString(s.name(i))
		if b.Len() > 2*maxTitle {
			break
		}
	}
	return b.String()
}

// name returns the element of a path for the current value of frame i.
func (s *jsonScanner) name(i int) string {
	f := &s.frames[:i+1][i]
	switch {
	case f.array:
		return "[" + strconv.FormatInt(f.index, 10) + "]"
	case len(f.key) == 0 || bytes.ContainsFunc(f.key, func(r rune) bool { return r < 0x80 && !inWord[r] && r != '-' && r != '$' }):
		return `["` + strings.ToValidUTF8(string(f.key), "") + `"]`
	}
	return "." + strings.ToValidUTF8(string(f.key), "")
}
