package chunk

import "bytes"

const (
	maxDepth   = 200 // of values in values. What is deeper is no JSON here
	maxKey     = 60  // bytes of a key that a path shows
	maxLiteral = 64
)

// A scanner reads JSON (RFC 8259), and values that follow each other. It wants every byte once, in any pieces: a string or
// a key of any length takes no memory. Positions are those of the text it is given, which moves on by shift.
type scanner struct {
	pos   int // what was read
	state state
	esc   bool   // in a string, after a backslash
	lit   []byte // a literal, as far as it was read

	// frames are the values that are open. Behind these are what is left of some that were: a mark needs them.
	frames []frame
	pushed int
	// marks are where values begin, or their keys, or the lines of these, by depth: the last one each. Those deeper than
	// top are from another value; those that are 0 or less are not after the beginning.
	marks [maxDepth + 1]int
	top   int

	lineAt int // after the last newline, if there was nothing but spaces since; else -1
	values int // that have ended and were in no other
	ended  bool
}

// A frame is an object or an array.
type frame struct {
	array  bool
	index  int64  // of the element that was begun, -1 before the first
	key    []byte // of the member that was begun, maxKey bytes at most
	named  bool   // key is all of it
	serial int    // no two are alike
}

// A state is what the scanner expects.
type state uint8

const (
	expectValue state = iota
	expectValueOrEnd
	expectKey
	expectKeyOrEnd
	expectColon
	expectNext
	inString
	inKey
	inLiteral
)

// An event is why the scanner returns.
type event uint8

const (
	nothing   event = iota
	exhausted       // all was read
	newValue        // a mark was made, at depth top
	newKey          // a key is known
	broken          // what is at pos is no JSON
)

// next reads on in b.
func (s *scanner) next(b []byte) event {
	for s.pos < len(b) {
		var e event
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

// shift says that text begins n bytes later from now on.
func (s *scanner) shift(n int) {
	s.pos -= n
	for i := range s.marks[:s.top+1] {
		s.marks[i] -= n
	}
	s.lineAt = max(s.lineAt-n, -1)
}

func (s *scanner) readString(b []byte) event {
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

// inKey adds to the key, if it is one.
func (s *scanner) inKey(b []byte) {
	if s.state == inKey {
		f := &s.frames[len(s.frames)-1]
		f.key = append(f.key, b[:min(len(b), maxKey-len(f.key))]...)
	}
}

func (s *scanner) readLiteral(c byte) event {
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
	case "true", "false", "null", "NaN", "Infinity", "-Infinity": // three of them not of the standard, but of writers
		return nothing
	}
	if c := s.lit[0]; (c == '-' || c >= '0' && c <= '9') && len(bytes.Trim(s.lit, "0123456789+-.eE")) == 0 {
		return nothing
	}
	return broken
}

// readToken reads what is in no string or literal.
func (s *scanner) readToken(c byte) event {
	if blank(c) {
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

func (s *scanner) token(c byte) event {
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

// begin begins a value, and returns e if it is one.
func (s *scanner) begin(c byte, e event) event {
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

func (s *scanner) closing() byte {
	if s.frames[len(s.frames)-1].array {
		return ']'
	}
	return '}'
}

func (s *scanner) push(array bool) {
	n := len(s.frames)
	if n == cap(s.frames) {
		s.frames = append(s.frames, frame{})
	} else {
		s.frames = s.frames[:n+1]
	}
	s.pushed++
	s.frames[n] = frame{array: array, index: -1, key: s.frames[n].key[:0], serial: s.pushed}
	s.state = expectKeyOrEnd
	if array {
		s.state = expectValueOrEnd
	}
}

func (s *scanner) pop() event {
	s.frames = s.frames[:len(s.frames)-1]
	s.state = expectNext
	if len(s.frames) == 0 {
		s.values++
	}
	return nothing
}

// mark notes where a value begins. It takes the spaces before it along, if these are all of the line so far.
func (s *scanner) mark() {
	s.top = len(s.frames)
	s.marks[s.top] = s.pos
	if s.lineAt >= 0 {
		s.marks[s.top] = s.lineAt
	}
}
