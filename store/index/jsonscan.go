package index

import "bytes"

const (
	maxDepth   = 200 // of nesting. Deeper values are treated as malformed
	maxKey     = 60  // bytes of a key that paths show
	maxLiteral = 64
)

// A scanner parses a sequence of JSON values (RFC 8259). It reads each byte once, in pieces of any size, and long strings
// and keys take no memory. Positions are relative to the text passed to next, whose start shift advances.
type jsonScanner struct {
	pos   int // number of bytes read
	state jsonState
	esc   bool   // in a string, after a backslash
	lit   []byte // the part of a literal that was read

	// frames are the open values. The elements behind its length belong to closed values; marks refer to them.
	frames []jsonFrame
	pushed int
	// marks are, by depth, where the last value starts, including its key and leading spaces. Marks deeper than top
	// belong to other values; marks that are not positive precede the text.
	marks [maxDepth + 1]int
	top   int

	lineAt int // position after the last newline, if only spaces have followed; else -1
	values int // number of complete top-level values
	ended  bool
}

// A frame is an open object or array.
type jsonFrame struct {
	array  bool
	index  int64  // of the current element, -1 before the first
	key    []byte // of the current member, at most maxKey bytes
	named  bool   // key is complete
	serial int    // unique per frame
}

// A state says what the scanner expects next.
type jsonState uint8

const (
	expectValue jsonState = iota
	expectValueOrEnd
	expectKey
	expectKeyOrEnd
	expectColon
	expectNext
	inString
	inKey
	inLiteral
)

// An event is the reason why the scanner returns.
type jsonEvent uint8

const (
	nothing   jsonEvent = iota
	exhausted           // all input was read
	newValue            // a mark was set, at depth top
	newKey              // a key is complete
	broken              // malformed JSON at pos
)

// next continues to read b.
func (s *jsonScanner) next(b []byte) jsonEvent {
	for s.pos < len(b) {
		var e jsonEvent
		switch s.state {
		case inString, inKey:
			e = s.readString(b)
		case inLiteral:
			e = s.readLiteral(b[s.pos])
		default:
			e = s.readToken(b[s.pos])
		}
		if e != nothing {
			return e
		}
	}
	return exhausted
}

// shift moves the start of the text n bytes forward.
func (s *jsonScanner) shift(n int) {
	s.pos -= n
	for i := range s.marks[:s.top+1] {
		s.marks[i] -= n
	}
	s.lineAt = max(s.lineAt-n, -1)
}

func (s *jsonScanner) readString(b []byte) jsonEvent {
	if s.esc {
		if b[s.pos] == '\n' {
			return broken
		}
		s.esc = false
		s.inKey(b[s.pos : s.pos+1])
		s.pos++
		return nothing
	}
	rest := b[s.pos:]
	n := 0
	for n < len(rest) && rest[n] != '"' && rest[n] != '\\' && rest[n] != '\n' {
		n++
	}
	s.inKey(rest[:n])
	s.pos += n
	if n == len(rest) {
		return nothing
	}
	switch rest[n] {
	case '\n':
		return broken
	case '\\':
		s.esc = true
		s.inKey(rest[n : n+1])
	case '"':
		if s.state == inKey {
			s.pos++
			s.frames[len(s.frames)-1].named = true
			s.state = expectColon
			return newKey
		}
		s.state = expectNext
	}
	s.pos++
	return nothing
}

// inKey appends to the key, if a key is being read.
func (s *jsonScanner) inKey(b []byte) {
	if s.state == inKey {
		f := &s.frames[len(s.frames)-1]
		f.key = append(f.key, b[:min(len(b), maxKey-len(f.key))]...)
	}
}

func (s *jsonScanner) readLiteral(c byte) jsonEvent {
	if letterOrDigit(c) || c == '.' || c == '+' || c == '-' {
		if len(s.lit) == maxLiteral {
			return broken
		}
		s.lit = append(s.lit, c)
		s.pos++
		return nothing
	}
	s.state = expectNext
	switch string(s.lit) {
	case "true", "false", "null", "NaN", "Infinity", "-Infinity": // the last three are not standard, but common
		return nothing
	}
	if c := s.lit[0]; (c == '-' || c >= '0' && c <= '9') && len(bytes.Trim(s.lit, "0123456789+-.eE")) == 0 {
		return nothing
	}
	return broken
}

// readToken reads a character outside of strings and literals.
func (s *jsonScanner) readToken(c byte) jsonEvent {
	if blankByte(c) {
		s.pos++
		if c == '\n' {
			s.lineAt = s.pos
			s.ended = s.ended || s.values > 0 && len(s.frames) == 0
		}
		return nothing
	}
	e := s.token(c)
	s.lineAt = -1
	if e != broken {
		s.pos++
	}
	return e
}

func (s *jsonScanner) token(c byte) jsonEvent {
	top := len(s.frames) == 0
	switch {
	case s.state == expectValueOrEnd && c == ']', s.state == expectKeyOrEnd && c == '}',
		s.state == expectNext && !top && c == s.closing():
		return s.pop()
	case s.state == expectNext && top, s.state == expectValue && top:
		s.mark()
		if c != '{' && c != '[' {
			return broken
		}
		return s.begin(c, newValue)
	case s.state == expectNext && c == ',':
		s.state = expectKey
		if s.frames[len(s.frames)-1].array {
			s.state = expectValue
		}
		return nothing
	case s.state == expectColon && c == ':':
		s.state = expectValue
		return nothing
	case (s.state == expectKey || s.state == expectKeyOrEnd) && c == '"':
		s.mark()
		f := &s.frames[len(s.frames)-1]
		f.key, f.named = f.key[:0], false
		s.state = inKey
		return newValue
	case s.state != expectValue && s.state != expectValueOrEnd:
		return broken
	}
	if f := &s.frames[len(s.frames)-1]; f.array {
		s.mark()
		f.index++
		return s.begin(c, newValue)
	}
	return s.begin(c, nothing)
}

// begin starts a value, and returns e if it is valid.
func (s *jsonScanner) begin(c byte, e jsonEvent) jsonEvent {
	switch {
	case c == '{' || c == '[':
		if len(s.frames) == maxDepth {
			return broken
		}
		s.push(c == '[')
	case c == '"':
		s.state = inString
	case letterOrDigit(c) || c == '-':
		s.state, s.lit = inLiteral, append(s.lit[:0], c)
	default:
		return broken
	}
	return e
}

func (s *jsonScanner) closing() byte {
	if s.frames[len(s.frames)-1].array {
		return ']'
	}
	return '}'
}

func (s *jsonScanner) push(array bool) {
	n := len(s.frames)
	if n == cap(s.frames) {
		s.frames = append(s.frames, jsonFrame{})
	} else {
		s.frames = s.frames[:n+1]
	}
	s.pushed++
	s.frames[n] = jsonFrame{array: array, index: -1, key: s.frames[n].key[:0], serial: s.pushed}
	s.state = expectKeyOrEnd
	if array {
		s.state = expectValueOrEnd
	}
}

func (s *jsonScanner) pop() jsonEvent {
	s.frames = s.frames[:len(s.frames)-1]
	s.state = expectNext
	if len(s.frames) == 0 {
		s.values++
	}
	return nothing
}

// mark records where a value starts. It includes the preceding spaces if they are all of the line so far.
func (s *jsonScanner) mark() {
	s.top = len(s.frames)
	s.marks[s.top] = s.pos
	if s.lineAt >= 0 {
		s.marks[s.top] = s.lineAt
	}
}
