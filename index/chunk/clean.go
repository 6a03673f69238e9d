package chunk

import "unicode/utf8"

// How long a control sequence is at most. What is longer, or breaks off, is text: nothing is lost to a stray escape.
const (
	maxControl = 64   // ESC [ parameters letter
	maxString  = 2048 // ESC ] text BEL, as for titles and links
)

const esc = 0x1b

// plain are the bytes that stand for themselves.
var plain = func() (t [256]bool) {
	for c := ' '; c <= '~'; c++ {
		t[c] = true
	}
	t['\t'], t['\n'] = true, true
	return t
}()

// A cleaner makes clean text of a stream: valid UTF-8, with no control sequence (ECMA-48, 5.3 to 5.6), no control character
// but tab and newline, no byte order mark. A carriage return before a newline goes; another one is a space, as are \v and
// \f. A run of bytes that is no UTF-8 is one U+FFFD.
type cleaner struct {
	held []byte // the end of what was read, which means one thing or another by what follows: at most maxString bytes
	bad  bool   // clean text ends with a U+FFFD for what may go on
}

// append adds to dst what p is in clean text. With end, nothing follows.
func (c *cleaner) append(dst, p []byte, end bool) []byte {
	b := p
	if len(c.held) > 0 {
		c.held = append(c.held, p...)
		b = c.held
	}
	run, bad := 0, -1 // where text begins that is to be copied; where bad bytes ended
	if c.bad {
		bad = 0
	}
	i := 0
	for i < len(b) {
		if plain[b[i]] {
			i++
			continue
		}
		n, as := special(b[i:], end)
		if n == 0 {
			break
		}
		if as != keep {
			dst = append(dst, b[run:i]...)
			if as == invalid && bad != i {
				dst = append(dst, "\uFFFD"...)
			} else if as == space {
				dst = append(dst, ' ')
			}
			run = i + n
		}
		i += n
		if as == invalid {
			bad = i
		}
	}
	dst = append(dst, b[run:i]...)
	c.bad = bad == i
	c.held = append(c.held[:0], b[i:]...)
	return dst
}

// What becomes of bytes.
const (
	keep = iota
	drop
	space
	invalid
)

// special returns how many bytes at the front of b, the first of which is not plain, are one thing, and what becomes of
// it. 0 is: more has to be known.
func special(b []byte, end bool) (n, as int) {
	switch c := b[0]; {
	case c == '\r':
		if len(b) == 1 && !end {
			return 0, keep
		}
		if len(b) > 1 && b[1] == '\n' {
			return 1, drop
		}
		return 1, space
	case c == esc:
		return escape(b, end), drop
	case c == '\v' || c == '\f':
		return 1, space
	case c < utf8.RuneSelf:
		return 1, drop
	}
	if !end && !utf8.FullRune(b) {
		return 0, keep
	}
	r, n := utf8.DecodeRune(b)
	switch {
	case r == utf8.RuneError && n == 1:
		return 1, invalid
	case r == 0x85: // next line
		return n, space
	case r < 0xa0 || r == 0xfeff: // C1 controls, byte order mark
		return n, drop
	}
	return n, keep
}

// escape returns how long the control sequence at the front of b is: 1, the escape alone, if it is none; 0 if more has
// to be known.
func escape(b []byte, end bool) int {
	if len(b) == 1 {
		if end {
			return 1
		}
		return 0
	}
	switch b[1] {
	case '[':
		return control(b, 2, maxControl, '@', end)
	case ']', 'P', 'X', '^', '_':
		return controlString(b, end)
	}
	return control(b, 1, 4, '0', end)
}

// control is a sequence that goes on at i with bytes below final, and ends with one from there on.
func control(b []byte, i, most int, final byte, end bool) int {
	for i < len(b) && i < most && b[i] >= ' ' && b[i] < final {
		i++
	}
	switch {
	case i == most:
		return 1
	case i == len(b) && !end:
		return 0
	case i < len(b) && b[i] >= final && b[i] <= '~':
		return i + 1
	}
	return 1
}

// controlString ends with BEL or ESC \. A newline or another escape breaks it off.
func controlString(b []byte, end bool) int {
	for i := 2; i < len(b); i++ {
		switch {
		case b[i] == 7:
			return i + 1
		case b[i] == esc && i+1 == len(b) && !end:
			return 0
		case b[i] == esc && i+1 < len(b) && b[i+1] == '\\':
			return i + 2
		case b[i] == esc, b[i] == '\n', i >= maxString:
			return 1
		}
	}
	if end {
		return 1
	}
	return 0
}
