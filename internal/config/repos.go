package config

import (
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"corral/job"
)

// keys fill in r.
func (r *Repo) keys() []key {
	return []key{
		{"path", func(p *parser, n *yaml.Node) { r.Path = p.path("path", n) }},
		{"id", func(p *parser, n *yaml.Node) { r.ID = p.id(n) }},
		{"users", func(p *parser, n *yaml.Node) { r.Users = p.users("users", n) }},
		{"owner", func(p *parser, n *yaml.Node) { r.Owner = p.userID("owner", n) }},
		{"profile", func(p *parser, n *yaml.Node) {
			r.Profile = p.text("profile", n)
			p.check(func(c *Config) { c.checkProfile(p, n, r.Profile) })
		}},
		{"workspace", func(p *parser, n *yaml.Node) { r.Workspace = p.workspace(n) }},
		{"protect", func(p *parser, n *yaml.Node) { r.Protect = p.protection(n) }},
		limitsKey("defaults", &r.Defaults),
		limitsKey("ceilings", &r.Ceilings),
		{"env", func(p *parser, n *yaml.Node) { p.mapping("env", n, envKeys(&r.Env)) }},
		{"runtimes", func(p *parser, n *yaml.Node) { r.Runtimes = p.runtimes("runtimes", n) }},
	}
}

// envKeys are about variables of the front-end.
func envKeys(allow *[]string) []key {
	return []key{{"allow", func(p *parser, n *yaml.Node) { *allow = p.names("allow", n, variable) }}}
}

// readRepos reads a list that holds instead of an earlier file's.
func (c *Config) readRepos(p *parser, n *yaml.Node) {
	c.Repos = nil
	p.list("repos", n, func(n *yaml.Node) {
		r := &Repo{}
		if p.mapping("repos", n, r.keys()) {
			c.addRepo(p, n, r)
		}
	})
}

func (c *Config) addRepo(p *parser, n *yaml.Node, r *Repo) {
	if valueOf(n, "path") == nil {
		p.fail(n, "a repository without `path`")
		return
	}
	if r.Path != "" && valueOf(n, "id") == nil {
		r.ID = filepath.Base(r.Path)
		if !goodID(r.ID) {
			p.fail(n, "repository %q needs an `id`: its base name is none of 1 to %d characters", shorten(r.Path), maxID)
			return
		}
	}
	for _, o := range c.Repos {
		switch {
		case r.Path != "" && o.Path == r.Path:
			p.fail(n, "repository %q is there twice", shorten(r.Path))
			return
		case r.ID != "" && o.ID == r.ID:
			p.fail(n, "two repositories are called %q, %q and %q: give one an `id` of its own", shorten(r.ID), shorten(o.Path), shorten(r.Path))
			return
		}
	}
	c.Repos = append(c.Repos, *r)
	p.check(func(c *Config) {
		p.settle(&r.Defaults, &r.Ceilings)
		p.settle(&r.Defaults, &c.Ceilings)
	})
}

// valueOf returns the value of a key of a mapping, nil without one.
func valueOf(n *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// maxID is how many characters a repository's id has at most.
const maxID = 128

func goodID(s string) bool {
	return s != "" && s != "/" && utf8.ValidString(s) && utf8.RuneCountInString(s) <= maxID && !strings.ContainsFunc(s, unicode.IsControl)
}

func (p *parser) id(n *yaml.Node) string {
	id := p.text("id", n)
	if id != "" && !goodID(id) {
		p.wanted("id", "a name of 1 to 128 characters", n)
		return ""
	}
	return id
}

func (p *parser) workspace(n *yaml.Node) *job.Workspace {
	word := p.text("workspace", n)
	if word == "" {
		return nil
	}
	w, err := job.ParseWorkspace(word)
	if err != nil {
		p.wanted("workspace", "direct, readonly or overlay", n)
	}
	return &w
}

func (p *parser) protection(n *yaml.Node) job.Protection {
	protect, err := job.ParseProtection(p.text("protect", n))
	if err != nil {
		p.wanted("protect", "none, hooks or all", n)
	}
	return protect
}

// keys fill in f.
func (f *Profile) keys() []key {
	return []key{
		{"syscalls", func(p *parser, n *yaml.Node) { f.Syscalls = p.word("syscalls", n, builtin()) }},
		{"workspace", func(p *parser, n *yaml.Node) { f.Workspace = p.workspace(n) }},
		limitsKey("defaults", &f.Defaults),
		limitsKey("ceilings", &f.Ceilings),
	}
}

// readProfiles reads a mapping of names that are the operator's to choose.
func (c *Config) readProfiles(p *parser, n *yaml.Node) {
	p.entries("profiles", n, func(name string, k, v *yaml.Node) {
		if slices.Contains(builtin(), name) {
			p.fail(k, "profile `%s` is there always, and is what it is: take another name", name)
			return
		}
		if !plainName(name) {
			p.fail(k, "profile %q: a name of 1 to 64 letters, digits, dots, dashes and underscores is wanted", shorten(name))
			return
		}
		f := c.Profiles[name]
		if !p.mapping("profiles", v, f.keys()) {
			return
		}
		if c.Profiles == nil {
			c.Profiles = map[string]Profile{}
		}
		c.Profiles[name] = f
		p.check(func(c *Config) {
			p.settle(&f.Defaults, &f.Ceilings)
			p.settle(&f.Defaults, &c.Ceilings)
		})
	})
}

func (c *Config) checkProfile(p *parser, n *yaml.Node, name string) {
	known := builtin()
	for k := range c.Profiles {
		known = append(known, k)
	}
	slices.Sort(known)
	if name != "" && !slices.Contains(known, name) {
		p.unknown(n, "profile", name, known)
	}
}
