package network

import (
	"errors"
	"fmt"
	"strings"
)

// wildcard begins a pattern for all names below the rest of it.
const wildcard = "*."

// A pattern is a set of names: one, or all below one. Two patterns have no name in common unless one has all names of the
// other.
type pattern struct {
	name  string // without the wildcard
	below bool   // the names below it, instead of the name itself
}

// parsePattern reads HOST or *.HOST.
func parsePattern(s string) (pattern, error) {
	p := pattern{name: s}
	p.name, p.below = strings.CutPrefix(s, wildcard)
	if s == "*" {
		return p, errors.New(`"*" would be every host: write HOST or *.HOST, such as *.example.org`)
	}
	if err := checkName(p.name); err != nil {
		return p, fmt.Errorf("%s: must be HOST or *.HOST, such as example.org: %w", shown(s), err)
	}
	if p.below && !strings.Contains(p.name, ".") {
		return p, fmt.Errorf("%s would be every host below %q: at least two labels must follow the wildcard, such as *.example.org", shown(s), p.name)
	}
	return p, nil
}

// CheckHost returns why s cannot be the host of a Rule or an entry of Rules.Deny.
func CheckHost(s string) error {
	_, err := parsePattern(s)
	return err
}

// checkName returns why s is not a host's name as this package has it: RFC 1123, and underscores, which are in use.
func checkName(s string) error {
	switch {
	case s == "":
		return errors.New("the name is empty")
	case len(s) > maxHost:
		return fmt.Errorf("a name has at most %d bytes", maxHost)
	case strings.HasSuffix(s, "."):
		return errors.New("write it without the final dot")
	case strings.ToLower(s) != s:
		return errors.New("write it in lower case")
	case strings.Contains(s, "*"):
		return errors.New("a wildcard can only be the first label, as in *.example.org")
	case strings.ContainsAny(s, "/@?#[]") || strings.Count(s, ":") > 1:
		return errors.New("it must be a name alone, neither a URL nor an address")
	case strings.Contains(s, ":"):
		return errors.New("the port does not belong to the name")
	}
	label := ""
	for label = range strings.SplitSeq(s, ".") {
		if err := checkLabel(label); err != nil {
			return err
		}
	}
	if numeric(label) {
		return errors.New("an address cannot be allowed, only names; networks without public addresses are in `private`")
	}
	return nil
}

func checkLabel(s string) error {
	const accepted = "letters, digits, dashes and underscores"
	switch {
	case s == "" || len(s) > maxLabel:
		return fmt.Errorf("between the dots there must be 1 to %d %s", maxLabel, accepted)
	case strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "":
		return errors.New("it may have " + accepted + "; write others in their ASCII form (xn--…)")
	case s[0] == '-' || s[len(s)-1] == '-':
		return errors.New("a dash cannot be beside a dot, nor at an end")
	}
	return nil
}

// numeric returns whether programs take a name with this last label for an IPv4 address: 127.1 and 0x7f000001 are addresses
// (WHATWG URL, "ends in a number").
func numeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// has returns whether all names of o are p's.
func (p pattern) has(o pattern) bool {
	if !p.below {
		return p == o
	}
	return o.below && o.name == p.name || strings.HasSuffix(o.name, "."+p.name)
}

// common returns the names that are in both. ok is false if there are none.
func (p pattern) common(o pattern) (both pattern, ok bool) {
	switch {
	case p.has(o):
		return o, true
	case o.has(p):
		return p, true
	}
	return pattern{}, false
}

// String returns the pattern as it is written.
func (p pattern) String() string {
	if p.below {
		return wildcard + p.name
	}
	return p.name
}

// shown returns s for an error: quoted, and cut if it is longer than any pattern.
func shown(s string) string {
	if len(s) > maxPattern {
		s = strings.ToValidUTF8(s[:maxPattern], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
