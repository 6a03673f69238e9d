// Package redact hides secrets in the output of jobs: credentials by their formats, values that are assigned to names such
// as PASSWORD, and values that the caller gives.
//
// A secret becomes [REDACTED:kind], where kind is aws-key, github-token or secret. Newlines within a secret are kept, so
// that line numbers stay those of the output. Redaction is a net with holes: a job that wants to reveal a secret can spell
// it differently (SECURITY.md).
//
// The rules are functions rather than regular expressions, which cannot decide conditions on what surrounds a value and
// cannot be resumed in the middle of a stream. With the same table of prefixes in front, package regexp also is too slow: 20
// MB/s (here 190) on text full of the words "token" and "password", 15 (50) where each of them is assigned a value, and 4
// (105) on a line of dashes. On ordinary text both read 1.4 GB/s, since only the table is used.
package redact

import (
	"slices"
	"sync"
)

// Rules are what is hidden in the output of one job. The zero value hides nothing. Several streams may share them.
type Rules struct {
	patterns *ruleset
	literals *ruleset // nil if there are none
}

// general is the rules for secrets in general, which all Rules share. It is no sync.OnceValue: its initializer would have the linker
// keep them in programs that redact nothing, such as corrald.
var general struct {
	once sync.Once
	set  *ruleset
}

// patterns returns the rules for secrets in general.
func patterns() *ruleset {
	general.once.Do(func() { general.set = newRuleset(patternRules()) })
	return general.set
}

// NewRules returns the rules for secrets in general, and for the given values. Values shorter than eight bytes are not
// hidden: they occur in ordinary output.
func NewRules(values []string) Rules {
	return Rules{patterns: patterns(), literals: literalRules(values)}
}

// Stream returns a new stream to redact.
func (r Rules) Stream() *Stream {
	s := &Stream{}
	// Literals are applied first: one may contain what a rule would take for the end of a value.
	for _, set := range [...]*ruleset{r.literals, r.patterns} {
		if set != nil {
			s.scanners = append(s.scanners, &scanner{rules: set})
		}
	}
	return s
}

// A Stream hides secrets in a stream that arrives in pieces. The result does not depend on how the stream is split. It
// holds at most about 4 KiB back, and needs no more memory, however long a secret is. It is not safe for concurrent use.
type Stream struct {
	scanners []*scanner // each reads what the previous one wrote
	between  []byte
}

// Append appends to dst the decided part of p and of what was held back before. p is not kept. last means that nothing
// follows.
func (s *Stream) Append(dst, p []byte, last bool) []byte {
	n := len(s.scanners)
	if n == 0 {
		return append(dst, p...)
	}
	for _, scan := range s.scanners[:n-1] {
		s.between = scan.write(s.between[:0], p, last)
		p = s.between
	}
	return s.scanners[n-1].write(dst, p, last)
}

// Text hides in text the secrets that are hidden in output, and the given values.
func Text(text string, values []string) string {
	return string(NewRules(values).Stream().Append(nil, []byte(text), true))
}

// minLiteral is the minimum length of a literal value to hide: shorter ones occur in ordinary output.
const minLiteral = 8

// literalRules returns rules for values, or nil if none is to be hidden. A value longer than lookahead allows is
// hidden in parts.
func literalRules(values []string) *ruleset {
	var parts []string
	for _, v := range values {
		for ; len(v) > lookahead/2; v = v[lookahead/2:] {
			parts = append(parts, v[:lookahead/2])
		}
		if len(v) >= minLiteral {
			parts = append(parts, v)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	// Longer ones first: one may be a prefix of another.
	slices.SortFunc(parts, func(a, b string) int { return len(b) - len(a) })
	var rules []*rule
	for _, p := range slices.Compact(parts) {
		rules = append(rules, &rule{prefix: p, secret: true, name: nameSecret, match: func(l *matchContext) (int, valueMatcher, bool) {
			return 0, valueMatcher{class: &anyByte, left: l.i}, true
		}})
	}
	return newRuleset(rules)
}
