package config

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// text reads a string that is not empty.
func (p *parser) text(name string, n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || n.Value == "" {
		p.wanted(name, "text", n)
		return ""
	}
	return n.Value
}

// word reads one of known, or returns the first of them.
func (p *parser) word(name string, n *yaml.Node, known []string) string {
	if s := p.text(name, n); s != "" && p.known(n, name, s, known) {
		return s
	}
	return known[0]
}

// names reads a list of different strings. want says what is wanted of each, "" if nothing; nil wants nothing.
func (p *parser) names(name string, n *yaml.Node, want func(string) string) []string {
	names := []string{}
	p.list(name, n, func(n *yaml.Node) {
		s := p.text(name, n)
		if s == "" {
			return
		}
		if want != nil {
			if what := want(s); what != "" {
				p.wanted(name, what, n)
				return
			}
		}
		if slices.Contains(names, s) {
			p.fail(n, "`%s`: %q is there twice", name, shorten(s))
			return
		}
		names = append(names, s)
	})
	return names
}

// some is as names. An empty list could be taken for all as for none.
func (p *parser) some(name string, n *yaml.Node, want func(string) string) []string {
	names := p.names(name, n, want)
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		p.fail(n, "`%s` is empty: name at least one, or leave it out", name)
	}
	return names
}

// plainName says whether s can name something everywhere.
func plainName(s string) bool {
	const letters = "._-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return s != "" && len(s) <= 64 && strings.Trim(s, letters) == ""
}
