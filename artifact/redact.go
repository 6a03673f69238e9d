package artifact

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
)

// window is how far a rule may look ahead before it decides, in bytes: the overlap of redaction over the stream. What
// follows a decision (the rest of a value, of a key) is hidden as it comes, however long it is.
const window = 4096

// A redactor hides secrets in a stream that comes in pieces. However it is cut, the result is that of one piece.
//
// Newlines within a secret are kept, so that the lines of what is shown are the lines that the job wrote.
type redactor struct {
	literals *scanner // first: a literal may hold what a rule would take for the end of a value. nil without any
	patterns *scanner
	between  []byte
}

// newRedactor returns one for the table of rules and for literal values, of which those under minLiteral are left out.
func newRedactor(patterns, literals *ruleset) *redactor {
	r := &redactor{patterns: &scanner{rules: patterns}}
	if literals != nil {
		r.literals = &scanner{rules: literals}
	}
	return r
}

// Redact hides in a text what is hidden in output, and these values. Newlines stay.
func Redact(text string, secrets []string) string {
	return string(newRedactor(defaultRules(), literalRules(secrets)).write(nil, []byte(text), true))
}

// write appends to dst what of p, and of what was held back before, is decided. last says that nothing follows.
func (r *redactor) write(dst, p []byte, last bool) []byte {
	if r.literals != nil {
		r.between = r.literals.write(r.between[:0], p, last)
		p = r.between
	}
	return r.patterns.write(dst, p, last)
}

// A scanner applies one set of rules, leftmost first; of rules that begin at one place, the first of the table.
type scanner struct {
	rules *ruleset
	held  []byte // came, and is not decided
	tail  []byte // came before held: the last hindsight bytes at most
	found verdict
	eat   valueMatcher
}

func (s *scanner) write(dst, p []byte, last bool) []byte {
	src := p
	if len(s.held) > 0 {
		s.held = append(s.held, p...)
		src = s.held
	}
	dst, n := s.scan(dst, src, last)
	s.remember(src[:n])
	s.held = append(s.held[:0], src[n:]...) // may be its own end, moved to its front
	return dst
}

// hindsight is how far a rule may look back, in bytes.
const hindsight = 64

// remember keeps the end of what was decided.
func (s *scanner) remember(p []byte) {
	if p = p[max(0, len(p)-hindsight):]; len(s.tail)+len(p) > hindsight {
		s.tail = append(s.tail[:0], s.tail[len(s.tail)+len(p)-hindsight:]...)
	}
	s.tail = append(s.tail, p...)
}

// scan appends to dst and returns how many bytes of src are decided.
func (s *scanner) scan(dst, src []byte, last bool) ([]byte, int) {
	at := 0
	for {
		if s.eat.on {
			n, ended := s.eat.run(src[at:], last)
			dst = newlines(dst, src[at:at+n])
			at += n
			if !ended {
				return dst, at
			}
			s.eat = valueMatcher{}
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
		s.eat = v.eat
	}
}

// newlines appends the newlines of hidden.
func newlines(dst, hidden []byte) []byte {
	for _, b := range hidden {
		if b == '\n' {
			dst = append(dst, '\n')
		}
	}
	return dst
}

// What a rule says of a place.
const (
	miss = iota
	more // it depends on what follows
	hit
)

// A verdict is what a rule says of a place that it fits.
type verdict struct {
	name  string // of the placeholder
	start int    // where the secret begins, counted from the place
	eat   valueMatcher
	look  matchContext // that the rule had; it is here to be used again
}

// find returns the first place from from on that a rule fits, which it puts into found, or may fit; without one, the end
// of what is decided.
func (s *scanner) find(src []byte, from int, last bool) (int, int) {
	for at := from; ; at++ {
		at = s.rules.next(src, at)
		if at < 0 {
			break
		}
		if what := s.rules.at(place{s.tail, src, at}, last, &s.found); what != miss {
			return at, what
		}
	}
	if last {
		return len(src), miss
	}
	return max(s.rules.undecided(src), from), miss
}

// undecided returns where in src, of which more follows, a rule may begin that is yet to be seen. What is shown of a job that
// runs ends with whole lines, therefore: no rule begins with a newline, as a rule.
func (s *ruleset) undecided(src []byte) int {
	at := max(len(src)-(anchor-1), 0)
	if !s.newline {
		at += bytes.LastIndexByte(src[at:], '\n') + 1
	}
	return at
}

// anchor is how many bytes of a rule's prefix are hashed to find it.
const anchor = 3

const (
	slotBits = 13
	slots    = 1 << slotBits
)

// A ruleset finds the rules that may begin at a place: by a hash of its first three bytes, in lower case.
type ruleset struct {
	slot    [slots]uint8 // 0 is no rule; else an index of buckets
	buckets [][]candidate
	newline bool // a rule has one in its first three bytes
}

// A candidate is a rule with the first eight bytes of its prefix, to see at once that it does not begin at a place.
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
	prefix string // what it begins with; at least anchor bytes
	nocase bool   // ASCII letters of the prefix in either case; it is written in lower case
	name   string // of the placeholder
	// match looks at what begins with the prefix, and returns where the secret begins and what belongs to it.
	match func(l *matchContext) (start int, e valueMatcher, ok bool)
}

func newRuleset(rules []*rule) *ruleset {
	s := &ruleset{buckets: make([][]candidate, 1)}
	for _, r := range rules {
		s.newline = s.newline || strings.Contains(r.prefix[:anchor], "\n")
		h := slotOf(uint32(r.prefix[0]|0x20) | uint32(r.prefix[1]|0x20)<<8 | uint32(r.prefix[2]|0x20)<<16)
		n := s.slot[h]
		switch {
		case n == 0 && len(s.buckets) == 256: // more literals than any job has: the last bucket is theirs together
			n = 255
		case n == 0:
			n = uint8(len(s.buckets))
			s.buckets = append(s.buckets, nil)
		}
		s.slot[h] = n
		s.buckets[n] = append(s.buckets[n], newCandidate(r))
	}
	return s
}

func slotOf(three uint32) uint32 { return three * 0x9E3779B1 >> (32 - slotBits) }

const lowerEight = 0x2020202020202020

// next returns the first place from at on where a rule may begin, -1 if there is none.
func (s *ruleset) next(src []byte, at int) int {
	if at+anchor <= len(src) && s.slot[slotOf(three(src[at:]))] != 0 { // where one may begin, another may next
		return at
	}
	for ; at+8 <= len(src); at += 6 {
		v := binary.LittleEndian.Uint64(src[at:]) | lowerEight
		a, b := s.slot[slotOf(uint32(v)&0xffffff)], s.slot[slotOf(uint32(v>>8)&0xffffff)]
		c, d := s.slot[slotOf(uint32(v>>16)&0xffffff)], s.slot[slotOf(uint32(v>>24)&0xffffff)]
		e, f := s.slot[slotOf(uint32(v>>32)&0xffffff)], s.slot[slotOf(uint32(v>>40)&0xffffff)]
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
		if s.slot[slotOf(three(src[at:]))] != 0 {
			return at
		}
	}
	return -1
}

// three is the first three bytes of b, in lower case.
func three(b []byte) uint32 {
	return (uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16) | lowerEight&0xffffff
}

// A place is one in a stream.
type place struct {
	tail []byte // before src
	src  []byte
	at   int // in src
}

// before returns the n-th byte before the place, counted from 1; of what is not known it is a zero byte.
func (p *place) before(n int) byte {
	switch i := p.at - n; {
	case n > hindsight || len(p.tail)+i < 0:
		return 0
	case i < 0:
		return p.tail[len(p.tail)+i]
	default:
		return p.src[i]
	}
}

// at returns what the rules say of a place; a hit is in v.
func (s *ruleset) at(p place, last bool, v *verdict) int {
	b := p.src[p.at:]
	if len(b) < anchor {
		return miss
	}
	bucket := s.buckets[s.slot[slotOf(three(b))]]
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

// decide asks a rule whose prefix is at a place.
func (s *ruleset) decide(r *rule, p place, last bool, v *verdict) int {
	l, b := &v.look, p.src[p.at:]
	*l = matchContext{place: p, b: b[:min(len(b), window)], i: len(r.prefix), last: last || len(b) >= window, rules: s}
	start, e, ok := r.match(l)
	switch {
	case l.short:
		return more
	case !ok:
		return miss
	}
	e.on = true
	v.name, v.start, v.eat = r.name, start, e
	return hit
}

// begins says whether b is the beginning of the prefix.
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

// minLiteral is the length from which a literal value is hidden: shorter ones are words of ordinary output.
const minLiteral = 8

// literalRules returns rules for values, nil if there is none to hide. One that is longer than the window is hidden in
// parts.
func literalRules(values []string) *ruleset {
	var parts []string
	for _, v := range values {
		for ; len(v) > window/2; v = v[window/2:] {
			parts = append(parts, v[:window/2])
		}
		if len(v) >= minLiteral {
			parts = append(parts, v)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	// Longer ones first: one may be the beginning of another.
	slices.SortFunc(parts, func(a, b string) int { return len(b) - len(a) })
	var rules []*rule
	for _, p := range slices.Compact(parts) {
		rules = append(rules, &rule{prefix: p, name: nameSecret, match: func(l *matchContext) (int, valueMatcher, bool) {
			return 0, valueMatcher{class: &anyByte, left: l.i}, true
		}})
	}
	return newRuleset(rules)
}
