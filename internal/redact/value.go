package redact

// A valueMatcher says which bytes, from the beginning of a secret, belong to it. It continues across pieces of the
// stream.
type valueMatcher struct {
	on    bool
	fixed int    // this many bytes unconditionally
	class *class // then bytes of this class,
	left  int    // at most this many
	// quote is used in place of class: the secret extends to this byte or the end of the line. escaped means that the
	// quote has a backslash before it; otherwise a backslash escapes the byte after it.
	quote   byte
	escaped bool
	slash   bool // the previous byte was such a backslash
	key     bool // ends after the last line of a key
}

const (
	keyEnd    = "-----END "
	maxKeyEnd = 80
)

// run returns how many bytes of b belong to the secret, and whether it has ended. If not, the rest of b must be
// passed again, with what follows.
func (e *valueMatcher) run(b []byte, last bool) (n int, ended bool) {
	n = min(e.fixed, len(b))
	e.fixed -= n
	for ; n < len(b) && e.left > 0; n++ {
		switch {
		case e.quote != 0:
			if stop, undecided := e.quoted(b[n:], last); stop {
				return n, !undecided
			}
		case !e.class[b[n]]:
			return n, true
		case e.key && b[n] == '-':
			if m, undecided := endOfKey(b[n:], last); m > 0 || undecided {
				return n + m, !undecided
			}
		}
		e.left--
	}
	return n, last || e.fixed == 0 && e.left <= 0
}

// quoted reports whether the secret stops before b, or that this depends on what follows.
func (e *valueMatcher) quoted(b []byte, last bool) (stop, undecided bool) {
	c := b[0]
	switch {
	case e.slash:
		e.slash = false
	case c == '\n':
		return true, false
	case c == e.quote:
		return true, false
	case c == '\\' && !e.escaped:
		e.slash = true
	case c == '\\' && len(b) == 1 && !last:
		return true, true
	case c == '\\' && len(b) > 1 && b[1] == e.quote:
		return true, false
	}
	return false, false
}

// endOfKey returns the length of a key's last line at the front of b, or 0 if there is none or that is undecided.
func endOfKey(b []byte, last bool) (n int, undecided bool) {
	front := min(len(b), len(keyEnd))
	if string(b[:front]) != keyEnd[:front] {
		return 0, false
	}
	for n = front; n < len(b) && n < maxKeyEnd && (upperDigit[b[n]] || b[n] == ' '); n++ {
	}
	const dashes = "-----"
	rest := b[n:min(len(b), n+len(dashes))]
	switch {
	case string(rest) != dashes[:len(rest)]:
		return 0, false
	case len(rest) < len(dashes) || front < len(keyEnd):
		return 0, !last
	}
	return n + len(dashes), false
}
