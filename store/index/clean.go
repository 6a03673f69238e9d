package index

import "unicode/utf8"

// Maximum sizes of control sequences. What is longer, or incomplete, is kept as text, so a stray escape loses no text.
const (
	maxControl = 64   // ESC [ parameters letter
	maxString  = 2048 // ESC ] text BEL, for example a title or a link
)

const esc = 0x1b

// plain marks the bytes that are copied unchanged.
var plainByte = func() (t [256]bool) {
	for c := ' '; c <= '~'; c++ {
		t[c] = true
	}
	t['\t'], t['\n'] = true, true
	return t
}()

// A cleaner converts a stream to clean text: valid UTF-8 without control sequences (ECMA-48, 5.3 to 5.6), control
// characters other than tab and newline, and byte order marks. A carriage return before a newline is dropped; any other
// one becomes a space, like \v and \f. A run of bytes that are not valid UTF-8 becomes one U+FFFD.
type cleaner struct {
	held []byte // end of the input whose meaning depends on what follows: at most maxString bytes
	bad  bool   // clean text ends with a U+FFFD for a run that may continue
}

// append appends the clean text of p to dst. end reports that nothing follows.
func (c *cleaner) append(dst, p []byte, end bool) []byte {
	b := p
	if len(c.held) > 0 {
		c.held = append(c.held, p...)
		b = c.held
	}
	run, bad := 0, -1 // start of the text to copy; end of the last invalid bytes
	if c.bad {
		bad = 0
	}
	i := 0
	for i < len(b) {
		if plainByte[b[i]] {
			i++
			continue
		}
		n, as := specialSequence(b[i:], end)
		if n == 0 {
			break
		}
		if as != keep {
			dst = append(dst, b[run:i]...)
			switch {
			case as == invalid && bad != i:
				dst = append(dst, "\uFFFD"...)
			case as == space:
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

// Actions for a run of bytes.
const (
	keep = iota
	drop
	space
	invalid
)

// special returns the length of the unit at the start of b, whose first byte is not plain, and the action for it. n is 0
// if more input is needed.
func specialSequence(b []byte, end bool) (n, as int) {
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
		return escapeSequence(b, end), drop
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
	case r == 0x85: // next line (NEL)
		return n, space
	case r < 0xa0 || r == 0xfeff: // C1 controls, byte order mark
		return n, drop
	}
	return n, keep
}

// escape returns the length of the control sequence at the start of b. It is 1, the escape alone, if there is none, and 0
// if more input is needed.
func escapeSequence(b []byte, end bool) int {
	if len(b) == 1 {
		if end {
			return 1
		}
		return 0
	}
	switch b[1] {
	case '[':
		return controlSequence(b, 2, maxControl, '@', end)
	case ']', 'P', 'X', '^', '_':
		return controlString(b, end)
	}
	return controlSequence(b, 1, 4, '0', end)
}

// control returns the length of a sequence that continues at i with bytes below final, and ends with one from final on.
func controlSequence(b []byte, i, maxLen int, final byte, end bool) int {
	for i < len(b) && i < maxLen && b[i] >= ' ' && b[i] < final {
		i++
	}
	switch {
	case i == maxLen:
		return 1
	case i == len(b) && !end:
		return 0
	case i < len(b) && b[i] >= final && b[i] <= '~':
		return i + 1
	}
	return 1
}

// controlString returns the length of a sequence that ends with BEL or ESC \. A newline or another escape aborts it.
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
