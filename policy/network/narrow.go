package network

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Narrow returns what s and the words of a job have in common. The words are separated by blanks or commas: the name of a
// preset, HOST, or HOST:PORT, where HOST may have a wildcard. Without a word it is all of s; the word "none", which must be
// alone, is nothing. A word that has nothing in common with s is an error, which says what an operator could add.
func (s *Set) Narrow(ask string) (*Set, error) {
	words, err := wordsOf(ask)
	if err != nil || words == nil {
		return s, err
	}
	wanted := asked{text: strings.Join(words, " ")}
	for _, word := range words {
		if word == noAccess {
			break
		}
		scopes, err := parseWord(word)
		if err != nil {
			return nil, fmt.Errorf("the requested network access: %w", err)
		}
		if err := s.meets(word, scopes); err != nil {
			return nil, err
		}
		wanted.scopes = append(wanted.scopes, scopes...)
	}
	narrowed := *s
	narrowed.asked = append(s.asked[:len(s.asked):len(s.asked)], wanted)
	return &narrowed, nil
}

// wordsOf returns the words of what a job asks for, nil if there are none. The word "none" is alone.
func wordsOf(ask string) ([]string, error) {
	if len(ask) > MaxAsk {
		return nil, fmt.Errorf("the requested network access has %d bytes, the maximum is %d", len(ask), MaxAsk)
	}
	words := strings.FieldsFunc(ask, func(r rune) bool { return strings.ContainsRune(" \t\r\n,", r) })
	if len(words) > MaxAsked {
		return nil, fmt.Errorf("the requested network access has %d words, the maximum is %d", len(words), MaxAsked)
	}
	if len(words) > 1 && slices.Contains(words, noAccess) {
		return nil, fmt.Errorf("the requested network access has %q and other words: request either", noAccess)
	}
	if len(words) == 0 {
		return nil, nil
	}
	return words, nil
}

// RulesFor returns rules that allow what the words of a job ask for, and nothing else: for an operator who runs the job. The words
// are those of Set.Narrow. A host without a port is reached by TLS at port 443, ports 80, 8000 and 8080 by plain HTTP, port 8443 by TLS,
// and any other port by anything.
func RulesFor(ask string) (*Rules, error) {
	words, err := wordsOf(ask)
	if err != nil {
		return nil, err
	}
	rules := new(Rules)
	for _, word := range words {
		if word == noAccess {
			break
		}
		if _, ok := presetNamed(word); ok {
			rules.Allow = append(rules.Allow, Rule{Preset: word})
			continue
		}
		scopes, err := parseWord(word)
		if err != nil {
			return nil, err
		}
		rules.Allow = append(rules.Allow, usual(scopes[0].hosts, scopes[0].port()))
	}
	return rules, rules.Check()
}

// parseWord returns the connections of one word. Only a preset has several scopes.
func parseWord(word string) ([]scope, error) {
	if preset, ok := presetNamed(word); ok {
		scopes := make([]scope, len(preset.Rules))
		for i, rule := range preset.Rules {
			var err error
			if scopes[i], err = rule.scope(); err != nil {
				return nil, err
			}
		}
		return scopes, nil
	}
	if strings.ContainsAny(word, "/@[]") || strings.Count(word, ":") > 1 {
		return nil, CheckHost(word)
	}
	host, port, with := strings.Cut(word, ":")
	hosts, err := parsePattern(host)
	if err != nil {
		return nil, err
	}
	if !with {
		return []scope{{hosts: hosts}}, nil
	}
	number, err := parsePort(port)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown(word), err)
	}
	return []scope{{hosts, []uint16{number}}}, nil
}

// ParseRule returns the rule for a preset, HOST or HOST:PORT, as people type it. protocol is that of the rule; "" is the one that
// is usual at the port.
func ParseRule(s, protocol string) (Rule, error) {
	scopes, err := parseWord(s)
	if err != nil {
		return Rule{}, err
	}
	rule := Rule{Host: scopes[0].hosts.String(), Ports: scopes[0].ports, Protocol: protocol}
	switch _, preset := presetNamed(s); {
	case preset:
		rule = Rule{Preset: s, Protocol: protocol}
	case protocol == "" && rule.Ports != nil:
		rule = usual(scopes[0].hosts, rule.Ports[0])
	}
	return rule, rule.Check()
}

// ParseHost reads HOST or HOST:PORT, where HOST is one name. Without a port it returns 0.
func ParseHost(s string) (name string, port uint16, err error) {
	host, _, _ := strings.Cut(s, ":")
	if err := checkName(host); err != nil {
		return "", 0, fmt.Errorf("%s: must be HOST or HOST:PORT: %w", shown(s), err)
	}
	if host == s {
		return host, 0, nil
	}
	port, err = parsePort(s[len(host)+1:])
	if err != nil {
		return "", 0, fmt.Errorf("%s: %w", shown(s), err)
	}
	return host, port, nil
}

// parsePort reads a port as people write it: without a sign or leading zeros.
func parsePort(s string) (uint16, error) {
	number, err := strconv.ParseUint(s, 10, 16)
	if err != nil || number == 0 || s[0] == '0' {
		return 0, errors.New("the port must be a number between 1 and 65535")
	}
	return uint16(number), nil
}

// meets returns an error if s allows no connection that is in scopes.
func (s *Set) meets(word string, scopes []scope) error {
	for _, a := range s.allow {
		for _, port := range a.ports {
			if s.wasAsked(a.hosts, port, append(s.asked[:len(s.asked):len(s.asked)], asked{word, scopes})) {
				return nil
			}
		}
	}
	if len(s.asked) > 0 {
		root := Set{allow: s.allow, deny: s.deny}
		if err := root.meets(word, scopes); err != nil {
			return err
		}
		return fmt.Errorf("%s is requested, but network access was requested before for %s alone", word, s.askedFor())
	}
	only := scopes[0]
	if denied, ok := s.denied(only.hosts); ok && len(scopes) == 1 {
		return fmt.Errorf("%s is requested, but the operator denies %s", word, denied)
	}
	add := listed(Rule{Preset: word})
	if _, preset := presetNamed(word); !preset {
		add = suggestion(only.hosts, only.port())
	}
	return fmt.Errorf("no rule allows %s\nhint: the operator can add to `network.allow`: %s", word, add)
}

// port returns the one port of a scope, 0 if there are several.
func (s scope) port() uint16 {
	if len(s.ports) == 1 {
		return s.ports[0]
	}
	return 0
}
