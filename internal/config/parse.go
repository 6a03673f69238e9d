package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"corral/internal/nearest"
	"corral/internal/text"
	"corral/job"
)

// A parser reads files into a Config, one after another. It works on the tree of nodes, which has positions, and never on
// what an alias stands for: a file of a kilobyte cannot become one of a gigabyte.
type parser struct {
	file   string // that is read
	nth    int    // of the files, from 0
	user   bool   // file is a user's, and has no keys of the supervisor's own
	errs   Errors
	lookup func(name string) (uint32, error)
	limits map[*int64]place // where a limit stands
	later  []func(c *Config)
}

// A place is a value in one of the files.
type place struct {
	file string
	nth  int
	n    *yaml.Node
}

// A key is one that a mapping may have.
type key struct {
	name string
	read func(p *parser, n *yaml.Node)
}

// A source is a file's content.
type source struct {
	file    string
	content []byte
	user    bool // it is a user's own
}

// parse returns the configuration in texts, of which a later one holds before an earlier.
func parse(texts []source, lookup func(string) (uint32, error)) (Config, error) {
	p := &parser{lookup: lookup, limits: map[*int64]place{}}
	c := Default()
	for i, t := range texts {
		p.file, p.nth, p.user = t.file, i, t.user
		p.one(&c, t.content)
	}
	for _, check := range p.later {
		check(&c)
	}
	p.settle(&c.Defaults, &c.Ceilings)
	p.settle(&c.Runtime.Defaults, &c.Ceilings)
	p.settle(&c.Runtime.Defaults, &job.Limits{Wall: c.Runtime.MaxDuration})
	if len(p.errs) > 0 {
		p.errs.sort()
		return Config{}, p.errs
	}
	return c, nil
}

func (p *parser) one(c *Config, content []byte) {
	root := p.document(content)
	if root == nil {
		return
	}
	version := false
	keys := append([]key{{"version", func(p *parser, n *yaml.Node) {
		version = true
		p.version(n)
	}}}, c.keys()...)
	if p.mapping("the file", root, keys) && !version {
		p.fail(nil, "no `version`: this corral reads `version: 1`")
	}
}

// here is where n stands.
func (p *parser) here(n *yaml.Node) place { return place{p.file, p.nth, n} }

// check has something looked at when all files are read. What it finds is reported for the file that is read now.
func (p *parser) check(look func(c *Config)) {
	file, nth := p.file, p.nth
	p.later = append(p.later, func(c *Config) {
		p.file, p.nth = file, nth
		look(c)
	})
}

func (p *parser) fail(n *yaml.Node, format string, args ...any) { p.failAt(p.here(n), format, args...) }

func (p *parser) failAt(at place, format string, args ...any) {
	e := &Error{File: at.file, Message: fmt.Sprintf(format, args...), nth: at.nth}
	if at.n != nil {
		e.Line, e.Column = at.n.Line, at.n.Column
	}
	p.errs = append(p.errs, e)
}

// document returns the root of the file's one document, or nil when there is an error.
func (p *parser) document(content []byte) *yaml.Node {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var n, second yaml.Node
	switch err := decoder.Decode(&n); {
	case errors.Is(err, io.EOF):
		p.fail(nil, "nothing is in it: this corral reads `version: 1`")
		return nil
	case err != nil:
		p.syntax(err)
		return nil
	}
	switch err := decoder.Decode(&second); {
	case err == nil:
		p.fail(&second, "a second document: one is read")
	case !errors.Is(err, io.EOF):
		p.syntax(err)
	}
	if n.Kind != yaml.DocumentNode || len(n.Content) != 1 {
		p.fail(nil, "nothing is in it: this corral reads `version: 1`")
		return nil
	}
	return n.Content[0]
}

// syntax reports what the library says, with the line where it says it: "yaml: line 3: did not find expected key".
func (p *parser) syntax(err error) {
	e := &Error{File: p.file, Message: strings.TrimPrefix(err.Error(), "yaml: "), nth: p.nth}
	if rest, ok := strings.CutPrefix(e.Message, "line "); ok {
		number, message, _ := strings.Cut(rest, ": ")
		if line, err := strconv.Atoi(number); err == nil {
			e.Line, e.Message = line, message
		}
	}
	p.errs = append(p.errs, e)
}

// mapping reads the keys of n, which is the value of name. It returns false if n is no mapping.
func (p *parser) mapping(name string, n *yaml.Node, keys []key) bool {
	return p.entries(name, n, func(_ string, k, v *yaml.Node) { p.entry(k, v, keys) })
}

// entries calls read for each key of n, which is the value of name. It returns false if n is no mapping.
func (p *parser) entries(name string, n *yaml.Node, read func(name string, k, v *yaml.Node)) bool {
	if n.Kind != yaml.MappingNode {
		p.wanted(name, "a mapping (`key: value`)", n)
		return false
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode {
			p.fail(k, "a key must be a name, not %s", found(k))
			continue
		}
		if line, twice := seen[k.Value]; twice {
			p.fail(k, "key `%s` is there twice: first on line %d", shown(k.Value), line)
			continue
		}
		seen[k.Value] = k.Line
		read(k.Value, k, v)
	}
	return true
}

func (p *parser) entry(k, v *yaml.Node, keys []key) {
	names := make([]string, 0, len(keys))
	for _, known := range keys {
		if known.name == k.Value {
			known.read(p, v)
			return
		}
		names = append(names, known.name)
	}
	p.unknown(k, "key", k.Value, names)
}

// unknown is an error about a word that is none of known.
func (p *parser) unknown(n *yaml.Node, what, word string, known []string) {
	if near := nearest.Of(word, known); near != "" {
		p.fail(n, "unknown %s `%s`: did you mean `%s`?", what, shown(word), near)
		return
	}
	p.fail(n, "unknown %s `%s`: known are %s", what, shown(word), strings.Join(known, ", "))
}

// known says whether word is one of known, and reports it if not.
func (p *parser) known(n *yaml.Node, what, word string, known []string) bool {
	if slices.Contains(known, word) {
		return true
	}
	p.unknown(n, what, word, known)
	return false
}

// list calls read for each entry of n, which is the value of name.
func (p *parser) list(name string, n *yaml.Node, read func(n *yaml.Node)) bool {
	if n.Kind != yaml.SequenceNode {
		p.wanted(name, "a list", n)
		return false
	}
	for _, one := range n.Content {
		read(one)
	}
	return true
}

// wanted is an error about the type or form of a value.
func (p *parser) wanted(name, what string, n *yaml.Node) {
	if name != "the file" {
		name = "`" + name + "`"
	}
	p.fail(n, "%s: %s is wanted, not %s", name, what, found(n))
}

// found says what a value is.
func found(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!str":
		return strconv.Quote(shorten(n.Value))
	}
	return shown(n.Value)
}

// shown is what an error repeats of a value.
func shown(s string) string { return text.Escape(shorten(s)) }

func shorten(s string) string { return text.Cut(s, 60) }
