package config

import (
	"encoding/hex"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A Principal is who calls over HTTP, known by a token.
type Principal struct {
	Name  string   // 1 to 64 of letters, digits, dots, dashes and underscores; unique
	Hash  [32]byte // SHA-256 of the token: see NewToken
	Repos []string // ids of repositories; nil is all
	Tools []string // names of tools, without dots; nil is all
}

// Principals are those of the files.
type Principals []Principal

func (r *Principal) keys() []key {
	return []key{
		{"name", func(p *parser, n *yaml.Node) {
			if r.Name = p.text("name", n); r.Name != "" && !plainName(r.Name) {
				p.wanted("name", "a name of 1 to 64 letters, digits, dots, dashes and underscores", n)
			}
		}},
		{"token_sha256", func(p *parser, n *yaml.Node) { r.Hash = p.hash("token_sha256", n) }},
		{"repos", func(p *parser, n *yaml.Node) { r.Repos = p.some("repos", n, repoID) }},
		{"tools", func(p *parser, n *yaml.Node) { r.Tools = p.some("tools", n, toolName) }},
	}
}

// readPrincipals reads a list that holds instead of an earlier file's.
func (c *Config) readPrincipals(p *parser, n *yaml.Node) {
	c.Principals = nil
	p.list("principals", n, func(n *yaml.Node) {
		var r Principal
		if p.mapping("principals", n, r.keys()) {
			c.addPrincipal(p, n, r)
		}
	})
}

func (c *Config) addPrincipal(p *parser, n *yaml.Node, r Principal) {
	for _, name := range []string{"name", "token_sha256"} {
		if valueOf(n, name) == nil {
			p.fail(n, "a principal without `%s`", name)
			return
		}
	}
	same := func(o Principal) bool { return r.Name != "" && o.Name == r.Name }
	if slices.ContainsFunc(c.Principals, same) {
		p.fail(n, "principal %q is there twice", shorten(r.Name))
		return
	}
	for _, o := range c.Principals {
		if r.Hash == o.Hash && r.Hash != [32]byte{} {
			p.fail(n, "principal %q has the token of %q", shorten(r.Name), shorten(o.Name))
		}
	}
	c.Principals = append(c.Principals, r)
}

// hash reads 64 hex digits. What else is there is not repeated: it may be a token.
func (p *parser) hash(name string, n *yaml.Node) (h [32]byte) {
	b, err := hex.DecodeString(n.Value)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || err != nil || len(b) != len(h) {
		p.fail(n, "`%s`: the SHA-256 of a token is wanted, 64 hex digits in quotes: see corral config token", name)
		return h
	}
	return [32]byte(b)
}

// repoID says what is wanted of the id of a repository. Whether there is such a one is not looked at: the command line
// adds to them.
func repoID(s string) string {
	if !goodID(s) {
		return "a repository's id"
	}
	return ""
}

// toolName says what is wanted of the name of a tool.
func toolName(s string) string {
	if len(s) > 64 || strings.Trim(s, "_abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return "a tool's name such as runtime_execute, without dots,"
	}
	return ""
}
