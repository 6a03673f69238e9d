package redact

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// lookahead is how many bytes a rule may look ahead before it decides: the overlap of redaction over the stream. The
// rest of a matched value or key is hidden as it arrives, however long it is.
const lookahead = 4096

// A scanner applies one set of rules, leftmost match first; at one position, the first rule in the table.
type scanner struct {
	rules   *ruleset
	held    []byte // received, but not decided yet
	tail    []byte // received before held: at most the last lookbehind bytes
	found   verdict
	matcher valueMatcher
}

func (s *scanner) write(dst, p []byte, last bool) []byte {
	src := p
	if len(s.held) > 0 {
		s.held = append(s.held, p...)
		src = s.held
	}
	dst, n := s.scan(dst, src, last)
	s.remember(src[:n])
	s.held = append(s.held[:0], src[n:]...) // src may alias held: its end is moved to its front
	return dst
}

// lookbehind is how many bytes a rule may look back.
const lookbehind = 64

// remember keeps the end of the decided bytes for lookbehind.
func (s *scanner) remember(p []byte) {
	if p = p[max(0, len(p)-lookbehind):]; len(s.tail)+len(p) > lookbehind {
		s.tail = append(s.tail[:0], s.tail[len(s.tail)+len(p)-lookbehind:]...)
	}
	s.tail = append(s.tail, p...)
}

// scan appends the decided part of src, redacted, to dst, and returns its length.
func (s *scanner) scan(dst, src []byte, last bool) ([]byte, int) {
	at := 0
	for {
		if s.matcher.on {
			n, ended := s.matcher.run(src[at:], last)
			dst = newlines(dst, src[at:at+n])
			at += n
			if !ended {
				return dst, at
			}
			s.matcher = valueMatcher{}
		}
		next, what := s.find(src, at, last)
		v := &s.found
		if what != hit {
			return append(dst, src[at:next]...), next
		}
		dst = append(dst, src[at:next+v.start]...)
		at = next + v.start
		dst = append(dst, "[REDACTED:"...)
		dst = append(dst, v.name...)
		dst = append(dst, ']')
		s.matcher = v.matcher
	}
}

// newlines appends the newlines of hidden to dst.
func newlines(dst, hidden []byte) []byte {
	for _, b := range hidden {
		if b == '\n' {
			dst = append(dst, '\n')
		}
	}
	return dst
}

// Results of trying the rules at a position.
const (
	miss = iota
	more // it depends on what follows
	hit
)

// A verdict describes a match.
type verdict struct {
	name    string // of the placeholder
	start   int    // where the secret begins, relative to the position
	matcher valueMatcher
	look    matchContext // scratch space of the rule, reused
}

// find returns the first position at or after from that a rule matches, which is put into found, or may match;
// without one, the end of the decided part.
func (s *scanner) find(src []byte, from int, last bool) (int, int) {
	for at := from; ; at++ {
		at = s.rules.next(src, at)
		if at < 0 {
			break
		}
		if what := s.rules.at(position{s.tail, src, at}, last, &s.found); what != miss {
			return at, what
		}
	}
	if last {
		return len(src), miss
	}
	return max(s.rules.undecided(src), from), miss
}

// undecided returns the first position in src where a rule may begin that cannot be recognized before more
// text arrives. Unless a rule begins with a newline, which is rare, that is never before the last newline: the
// output shown of a running job ends with complete lines.
func (s *ruleset) undecided(src []byte) int {
	at := max(len(src)-(anchor-1), 0)
	if !s.newline {
		at += bytes.LastIndexByte(src[at:], '\n') + 1
	}
	return at
}

// anchor is the number of bytes of a rule's prefix that are hashed to find it.
const anchor = 3

const (
	hashBits = 13
	hashSize = 1 << hashBits
)

// A ruleset finds the rules that may begin at a position, by a hash of its first three bytes in lower case.
type ruleset struct {
	table   [hashSize]uint8 // index of buckets; 0 is no rule
	buckets [][]candidate
	newline bool // a rule has a newline in its first three bytes
}

// A candidate is a rule with the first eight bytes of its prefix, which reject most positions with one comparison.
type candidate struct {
	*rule
	fold, mask, front uint64 // (eight bytes | fold) & mask == front
}

func newCandidate(r *rule) candidate {
	var front, mask [8]byte
	copy(front[:], r.prefix)
	for i := range min(len(r.prefix), 8) {
		mask[i] = 0xff
	}
	c := candidate{rule: r, mask: binary.LittleEndian.Uint64(mask[:])}
	if r.nocase {
		c.fold = lowerEight
	}
	c.front = (binary.LittleEndian.Uint64(front[:]) | c.fold) & c.mask
	return c
}

// A rule is one row of a table.
type rule struct {
	prefix string // at least anchor bytes
	nocase bool   // the prefix, which is in lower case, matches ASCII letters in either case
	secret bool   // the prefix is part of the secret
	name   string // of the placeholder
	// match examines the text after the prefix, and returns where the secret begins and which bytes belong to it.
	match func(l *matchContext) (start int, e valueMatcher, ok bool)
}

func newRuleset(rules []*rule) *ruleset {
	s := &ruleset{buckets: make([][]candidate, 1)}
	for _, r := range rules {
		s.newline = s.newline || strings.Contains(r.prefix[:anchor], "\n")
		h := hashOf(uint32(r.prefix[0]|0x20) | uint32(r.prefix[1]|0x20)<<8 | uint32(r.prefix[2]|0x20)<<16)
		n := s.table[h]
		switch {
		case n == 0 && len(s.buckets) == 256: // more literals than any job has: the last bucket is shared
			n = 255
		case n == 0:
			n = uint8(len(s.buckets))
			s.buckets = append(s.buckets, nil)
		}
		s.table[h] = n
		s.buckets[n] = append(s.buckets[n], newCandidate(r))
	}
	return s
}

func hashOf(three uint32) uint32 { return three * 0x9E3779B1 >> (32 - hashBits) }

const lowerEight = 0x2020202020202020

// next returns the first position at or after at where a rule may begin, or -1.
func (s *ruleset) next(src []byte, at int) int {
	if at+anchor <= len(src) && s.table[hashOf(three(src[at:]))] != 0 { // fast path: candidates often follow one another
		return at
	}
	for ; at+8 <= len(src); at += 6 {
		v := binary.LittleEndian.Uint64(src[at:]) | lowerEight
		a, b := s.table[hashOf(uint32(v)&0xffffff)], s.table[hashOf(uint32(v>>8)&0xffffff)]
		c, d := s.table[hashOf(uint32(v>>16)&0xffffff)], s.table[hashOf(uint32(v>>24)&0xffffff)]
		e, f := s.table[hashOf(uint32(v>>32)&0xffffff)], s.table[hashOf(uint32(v>>40)&0xffffff)]
		if a|b|c|d|e|f == 0 {
			continue
		}
		for i, n := range [...]uint8{a, b, c, d, e, f} {
			if n != 0 {
				return at + i
			}
		}
	}
	for ; at+anchor <= len(src); at++ {
		if s.table[hashOf(three(src[at:]))] != 0 {
			return at
		}
	}
	return -1
}

// three returns the first three bytes of b, in lower case.
func three(b []byte) uint32 {
	return (uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16) | lowerEight&0xffffff
}

// A position is an index into a stream.
type position struct {
	tail []byte // before src
	src  []byte
	at   int // in src
}

// before returns the n-th byte before the position, counted from 1, or 0 if it is not known.
func (p *position) before(n int) byte {
	switch i := p.at - n; {
	case n > lookbehind || len(p.tail)+i < 0:
		return 0
	case i < 0:
		return p.tail[len(p.tail)+i]
	default:
		return p.src[i]
	}
}

// at tries the rules at a position; a match is put into v.
func (s *ruleset) at(p position, last bool, v *verdict) int {
	b := p.src[p.at:]
	if len(b) < anchor {
		return miss
	}
	bucket := s.buckets[s.table[hashOf(three(b))]]
	for i := range bucket {
		c := &bucket[i]
		if len(b) >= 8 && (binary.LittleEndian.Uint64(b)|c.fold)&c.mask != c.front {
			continue
		}
		n := min(len(b), len(c.prefix))
		switch {
		case !c.begins(b[:n]):
		case n == len(c.prefix):
			if what := s.decide(c.rule, p, last, v); what != miss {
				return what
			}
		case !last:
			return more
		}
	}
	return miss
}

// decide tries a rule whose prefix is at a position.
func (s *ruleset) decide(r *rule, p position, last bool, v *verdict) int {
	l, b := &v.look, p.src[p.at:]
	*l = matchContext{position: p, b: b[:min(len(b), lookahead)], i: len(r.prefix), last: last || len(b) >= lookahead, rules: s}
	start, e, ok := r.match(l)
	switch {
	case l.short:
		return more
	case !ok:
		return miss
	}
	e.on = true
	v.name, v.start, v.matcher = r.name, start, e
	return hit
}

// begins reports whether the prefix begins with b.
func (r *rule) begins(b []byte) bool {
	for i, c := range b {
		if c != r.prefix[i] && (!r.nocase || lower(c) != r.prefix[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c | 0x20
	}
	return c
}
