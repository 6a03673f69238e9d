package config

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"corral/job"
)

// keys are those of the file, but for its version.
func (c *Config) keys() []key {
	return []key{
		supervisor(key{"uids", func(p *parser, n *yaml.Node) { c.UIDs.read(p, n) }}),
		{"repos", func(p *parser, n *yaml.Node) { c.readRepos(p, n) }},
		supervisor(key{"toolchains", func(p *parser, n *yaml.Node) { c.readToolchains(p, n) }}),
		supervisor(key{"own_directories", func(p *parser, n *yaml.Node) { c.OwnDirectories = p.boolean("own_directories", n) }}),
		limitsKey("defaults", &c.Defaults),
		limitsKey("ceilings", &c.Ceilings),
		{"profiles", func(p *parser, n *yaml.Node) { c.readProfiles(p, n) }},
		supervisor(timeKey("jail_idle", &c.JailIdle, time.Second, 30*24*time.Hour)),
		supervisor(countKey("max_jobs", &c.MaxJobs, 65536)),
		supervisor(countKey("max_jobs_per_user", &c.MaxJobsPerUser, 65536)),
		supervisor(countKey("max_jails", &c.MaxJails, 65536)),
		supervisor(numberKey("warm_slots", &c.WarmSlots, 256)),
		supervisor(numberKey("max_warm_slots", &c.MaxWarmSlots, 65536)),
		supervisor(sectionKey("audit", c.Audit.keys())),
		supervisor(sectionKey("layers", c.Layers.keys())),
		sectionKey("runtime", c.Runtime.keys()),
		sectionKey("output", c.Output.keys()),
		sectionKey("artifacts", c.Artifacts.keys()),
		{"principals", func(p *parser, n *yaml.Node) { c.readPrincipals(p, n) }},
		sectionKey("http", c.HTTP.keys()),
		sectionKey("exec_server", c.ExecServer.keys()),
		sectionKey("sandbox", c.Sandbox.keys()),
		sectionKey("ctx", c.Ctx.keys()),
		sectionKey("index", c.Index.keys()),
		sectionKey("starlark", c.Starlark.keys()),
		sectionKey("telemetry", c.Telemetry.keys()),
	}
}

// supervisor is a key that front-ends make no use of: in a user's file it could only mislead.
func supervisor(k key) key {
	return key{k.name, func(p *parser, n *yaml.Node) {
		if p.user {
			p.fail(n, "`%s` is the supervisor's, which reads %s and no user's file", k.name, DefaultPath)
			return
		}
		k.read(p, n)
	}}
}

func sectionKey(name string, keys []key) key {
	return key{name, func(p *parser, n *yaml.Node) { p.mapping(name, n, keys) }}
}

func flagKey(name string, into *bool) key {
	return key{name, func(p *parser, n *yaml.Node) {
		if b := p.boolean(name, n); b != nil {
			*into = *b
		}
	}}
}

// countKey is of a number from 1.
func countKey(name string, into *int, most int64) key {
	return key{name, func(p *parser, n *yaml.Node) { *into = int(p.number(name, "count", n, 1, most)) }}
}

// numberKey is of a number from 0.
func numberKey(name string, into *int, most int64) key {
	return key{name, func(p *parser, n *yaml.Node) { *into = int(p.number(name, "number", n, 0, most)) }}
}

func sizeKey(name string, into *int64, least, most int64) key {
	return key{name, func(p *parser, n *yaml.Node) { *into = p.number(name, "size", n, least, most) }}
}

func timeKey(name string, into *time.Duration, least, most time.Duration) key {
	return key{name, func(p *parser, n *yaml.Node) {
		*into = time.Duration(p.number(name, "time", n, int64(least), int64(most)))
	}}
}

func (p *parser) version(n *yaml.Node) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || n.Value != "1" {
		p.fail(n, "`version`: this corral reads 1, not %s", found(n))
	}
}

func (u *UIDs) keys() []key {
	return []key{
		{"base", func(p *parser, n *yaml.Node) { u.Base = uint32(p.number("base", "id", n, 1<<16, 1<<32-2)) }},
		{"size", func(p *parser, n *yaml.Node) { u.Size = uint32(p.number("size", "id", n, 1024, 1<<32-2)) }},
	}
}

func (u *UIDs) read(p *parser, n *yaml.Node) {
	if p.mapping("uids", n, u.keys()) && uint64(u.Base)+uint64(u.Size) > 1<<32-2 {
		p.fail(n, "`uids`: base and size reach beyond 4294967294, the last user id")
	}
}

func (c *Config) readToolchains(p *parser, n *yaml.Node) {
	c.Toolchains = nil
	p.list("toolchains", n, func(n *yaml.Node) { c.Toolchains = append(c.Toolchains, p.path("toolchains", n)) })
}

// users reads names and numbers into ids. An empty list could be taken for everybody as for nobody.
func (p *parser) users(key string, n *yaml.Node) []uint32 {
	ids := []uint32{}
	ok := p.list(key, n, func(n *yaml.Node) {
		if id := p.userID(key, n); id != nil {
			ids = append(ids, *id)
		}
	})
	if ok && len(n.Content) == 0 {
		p.fail(n, "`%s` is empty: %s", key, emptyUsers(key))
	}
	return ids
}

// userID reads a user's name or number; nil after an error.
func (p *parser) userID(key string, n *yaml.Node) *uint32 {
	var id uint32
	switch tag := n.ShortTag(); {
	case n.Kind == yaml.ScalarNode && tag == "!!int":
		id = uint32(p.number(key, "id", n, 0, 1<<32-2))
	case n.Kind == yaml.ScalarNode && tag == "!!str" && n.Value != "":
		var err error
		if id, err = p.lookup(n.Value); err != nil {
			p.fail(n, "`%s`: no user %q here", key, shorten(n.Value))
			return nil
		}
	default:
		p.wanted(key, "a user's name or number", n)
		return nil
	}
	return &id
}

func emptyUsers(key string) string {
	if key == "users" {
		return "name those who may have jobs there, or leave it out for everybody"
	}
	return "name those who may connect too, or leave it out"
}

func (p *parser) boolean(name string, n *yaml.Node) *bool {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
		p.wanted(name, "true or false", n)
		return nil
	}
	value := strings.EqualFold(n.Value, "true")
	return &value
}

// path reads an absolute, clean path.
func (p *parser) path(name string, n *yaml.Node) string {
	switch {
	case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str":
		p.wanted(name, "an absolute path", n)
	case !filepath.IsAbs(n.Value) || strings.IndexByte(n.Value, 0) >= 0:
		p.wanted(name, "an absolute path", n)
	case filepath.Clean(n.Value) != n.Value:
		p.fail(n, "`%s`: write %q as %q", name, shorten(n.Value), shorten(filepath.Clean(n.Value)))
	default:
		return n.Value
	}
	return ""
}

// A form is one of writing a number.
type form struct {
	what  string   // is wanted, in an error
	tags  []string // of YAML, that it may have
	parse func(s string) (int64, error)
	write func(n int64) string
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// forms are the ways in which numbers are written, by a name of ours.
var forms = map[string]form{
	"size":   {"a size such as 512MiB", []string{"!!str", "!!int"}, job.ParseSize, job.FormatSize},
	"count":  {"a positive whole number", []string{"!!int"}, job.ParseCount, decimal},
	"number": {"a whole number", []string{"!!int"}, func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }, decimal},
	"cpus":   {"a number of CPUs such as 1.5", []string{"!!int", "!!float"}, job.ParseCPUs, job.FormatCPUs},
	"time": {
		"a time such as 30s",
		[]string{"!!str", "!!int", "!!float"},
		func(s string) (int64, error) {
			d, err := job.ParseDuration(s)
			return int64(d), err
		},
		func(n int64) string { return time.Duration(n).String() },
	},
	"wait": {
		"a time such as 30s, or 0",
		[]string{"!!str", "!!int", "!!float"},
		func(s string) (int64, error) {
			if s == "0" || s == "0s" {
				return 0, nil
			}
			d, err := job.ParseDuration(s)
			return int64(d), err
		},
		func(n int64) string { return time.Duration(n).String() },
	},
	// Base prefixes are for ranges of user ids.
	"id": {
		"a whole number",
		[]string{"!!int"},
		func(s string) (int64, error) { return strconv.ParseInt(s, 0, 64) }, decimal,
	},
}

// number reads n in a form of forms. It returns least when there is an error.
func (p *parser) number(name, formName string, n *yaml.Node, least, most int64) int64 {
	f := forms[formName]
	if n.Kind != yaml.ScalarNode || !slices.Contains(f.tags, n.ShortTag()) {
		p.wanted(name, f.what, n)
		return least
	}
	v, err := f.parse(n.Value)
	switch {
	case err != nil:
		p.wanted(name, f.what, n)
	case v < least || v > most:
		p.fail(n, "`%s`: %s is not between %s and %s", name, shown(n.Value), f.write(least), f.write(most))
	default:
		return v
	}
	return least
}
