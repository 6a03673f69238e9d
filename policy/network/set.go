package network

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Set decides about connections. It does not change and may be used concurrently. The zero Set allows nothing.
type Set struct {
	allow []allowed // in the order of the configuration, with those of presets in the place of the preset
	deny  []pattern
	// asked has what was asked for at each narrowing. A connection must be in each of them.
	asked []asked
}

// A scope is a set of connections.
type scope struct {
	hosts pattern
	ports []uint16 // nil: all
}

// An allowed is a rule of a Set.
type allowed struct {
	scope    // with ports
	protocol string
	rule     Rule // as it was configured
	one      Rule // the same, or the one of its preset
}

// An asked is what a job asked for.
type asked struct {
	text   string
	scopes []scope
}

// A Decision says whether a name may be looked up, or a port of it connected to.
type Decision struct {
	Allowed  bool
	Rule     string // the entry that decided, as it is written; "" if none did
	Protocol string // of an allowed connection: TLS, HTTP or TCP
	Why      string // why it is not allowed
	Allow    string // the entry of `allow` that would allow it, on one line; "" if none would
}

// A Port is a port of a host that jobs may connect to.
type Port struct {
	Number   uint16
	Protocol string
}

// Compile checks r and returns its Set. A nil r allows nothing.
func Compile(r *Rules) (*Set, error) {
	s := new(Set)
	if r == nil {
		return s, nil
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	for _, rule := range r.Allow {
		for _, one := range rule.each() {
			scope, err := one.scope()
			if err != nil {
				return nil, err
			}
			s.allow = append(s.allow, allowed{scope, one.protocol(), rule, one})
		}
	}
	for _, host := range r.Deny {
		p, err := parsePattern(host)
		if err != nil {
			return nil, err
		}
		s.deny = append(s.deny, p)
	}
	return s, nil
}

// scope returns the connections of a rule that is not a preset.
func (r Rule) scope() (scope, error) {
	hosts, err := parsePattern(r.Host)
	ports := slices.Clone(r.Ports)
	switch {
	case len(ports) > 0:
	case r.protocol() == HTTP:
		ports = []uint16{80}
	default:
		ports = []uint16{443}
	}
	return scope{hosts, ports}, err
}

func (r Rule) protocol() string {
	switch {
	case r.Protocol != "" && r.Protocol != TLS:
		return r.Protocol
	case r.inspects():
		return HTTPS
	}
	return TLS
}

func (s scope) opens(port uint16) bool { return s.ports == nil || slices.Contains(s.ports, port) }

// Name decides whether a name may be looked up: whether a port of it may be connected to.
func (s *Set) Name(name string) Decision { return s.decide(name, 0) }

// Decide decides about a connection to a port of a name.
func (s *Set) Decide(name string, port uint16) Decision {
	if port == 0 {
		return Decision{Why: "port 0 cannot be connected to"}
	}
	return s.decide(name, port)
}

// decide decides about a port of a name, or all of its ports if port is 0.
func (s *Set) decide(name string, port uint16) Decision {
	if err := checkName(name); err != nil {
		return Decision{Why: fmt.Sprintf("%s is not the name of a host: %v", shown(name), err)}
	}
	hosts := pattern{name: name}
	if denied, ok := s.denied(hosts); ok {
		return Decision{Rule: "deny: " + quoted(denied.String()), Why: fmt.Sprintf("the operator denies %s", denied)}
	}
	unasked := Decision{}
	for _, a := range s.allow {
		if !a.hosts.has(hosts) {
			continue
		}
		for _, p := range a.ports {
			switch {
			case port != 0 && p != port:
			case s.wasAsked(hosts, p, s.asked):
				return Decision{Allowed: true, Rule: a.rule.String(), Protocol: a.protocol}
			case unasked.Rule == "":
				unasked = Decision{Rule: a.rule.String(), Why: s.notAsked(name)}
			}
		}
	}
	if unasked.Rule != "" {
		return unasked
	}
	return Decision{Why: s.notListed(name, port), Allow: suggestion(hosts, port)}
}

// denied returns the first entry of Deny that has all of hosts.
func (s *Set) denied(hosts pattern) (pattern, bool) {
	for _, d := range s.deny {
		if d.has(hosts) {
			return d, true
		}
	}
	return pattern{}, false
}

// wasAsked returns whether a host that is not denied is among hosts and in each of lists, with this port.
func (s *Set) wasAsked(hosts pattern, port uint16, lists []asked) bool {
	if len(lists) == 0 {
		_, denied := s.denied(hosts)
		return !denied
	}
	for _, word := range lists[0].scopes {
		both, ok := hosts.common(word.hosts)
		if ok && word.opens(port) && s.wasAsked(both, port, lists[1:]) {
			return true
		}
	}
	return false
}

func (s *Set) notAsked(name string) string {
	for _, a := range s.asked {
		if a.scopes == nil {
			return "the job asked for no network access"
		}
	}
	return fmt.Sprintf("%s is allowed, but the job asked for %s alone", name, s.askedFor())
}

// askedFor names what was asked for at each narrowing.
func (s *Set) askedFor() string {
	words := make([]string, len(s.asked))
	for i, a := range s.asked {
		words[i] = strconv.Quote(a.text)
	}
	return strings.Join(words, " and then ")
}

// notListed says what the rules have of a name that they do not allow, or not with this port.
func (s *Set) notListed(name string, port uint16) string {
	ports := s.Ports(name)
	if len(ports) == 0 || port == 0 {
		return "no rule allows " + name
	}
	numbers := make([]string, len(ports))
	for i, p := range ports {
		numbers[i] = strconv.Itoa(int(p.Number))
	}
	return fmt.Sprintf("no rule allows port %d of %s, only %s", port, name, strings.Join(numbers, ", "))
}

// Ports returns the ports of a name that may be connected to, in the order of the rules; nil if there are none.
func (s *Set) Ports(name string) []Port {
	hosts := pattern{name: name}
	if checkName(name) != nil {
		return nil
	}
	var ports []Port
	for _, a := range s.allow {
		if !a.hosts.has(hosts) {
			continue
		}
		for _, number := range a.ports {
			known := slices.ContainsFunc(ports, func(p Port) bool { return p.Number == number })
			if !known && s.wasAsked(hosts, number, s.asked) {
				ports = append(ports, Port{number, a.protocol})
			}
		}
	}
	return ports
}
