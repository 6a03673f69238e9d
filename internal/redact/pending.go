package redact

import "bytes"

// Pending appends to dst what views of an unfinished stream show of the text that is held back: as if the stream ended here, but no
// byte of what may turn out to be a secret. A prompt such as "Password: " is complete, and so are the last two bytes of a line.
func (s *Stream) Pending(dst []byte) []byte {
	for i := len(s.scanners) - 1; i >= 0; i-- { // the last scanner holds the earlier text
		scan := s.scanners[i]
		n := scan.rules.public(scan.held)
		dst = append(dst, scan.held[:n]...)
		if n < len(scan.held) || scan.matcher.on {
			break
		}
	}
	return dst
}

// public returns how much of held, which begins where a rule may begin, belongs to no secret: names and what is between them and values.
func (s *ruleset) public(held []byte) int {
	if len(held) < anchor {
		return len(held)
	}
	least := len(held)
	for _, c := range s.buckets[s.table[hashOf(three(held))]] {
		n := min(len(held), len(c.prefix))
		switch {
		case !c.begins(held[:n]):
		case c.secret:
			return anchor - 1
		case n == len(c.prefix):
			value := bytes.TrimLeft(held[n:], " \t:=")
			least = min(least, len(held)-len(value))
		}
	}
	return least
}
