package artifact

// An valueMatcher says which bytes, from where a secret begins, belong to it. It goes on for as long as they come.
type valueMatcher struct {
	on    bool
	fixed int    // so many bytes do, whatever they are
	class *class // then those of a class,
	left  int    // at most so many
	// quote, in place of a class: up to this byte or the end of the line. escaped is a quote after a backslash; else a
	// backslash takes the byte after it along.
	quote   byte
	escaped bool
	slash   bool // the byte before was such a backslash
	key     bool // ends after a key's last line
}

const (
	keyEnd    = "-----END "
	maxKeyEnd = 80
)

// run returns how many bytes of b belong to the secret, and whether it has ended. If it has not, the rest of b is to be
// shown again, with what follows.
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
			if m, undecided := endOfKey(b[n:], last); undecided {
				return n, false
			} else if m > 0 {
				return n + m, true
			}
		}
		e.left--
	}
	return n, last || e.fixed == 0 && e.left <= 0
}

// quoted says whether the secret stops before b, or that this depends on what follows.
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

// endOfKey returns how long a key's last line at the front of b is, 0 if it is none.
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
