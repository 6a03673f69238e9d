package config

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"corral/job"
)

// unlimited lifts a limit that can be lifted.
const unlimited = "unlimited"

// limitForms are the forms in which limits are written, by their name in package job.
var limitForms = map[string]string{
	"memory": "size", "cpus": "cpus", "pids": "count", "timeout": "time", "tmp": "size", "tmp inodes": "count",
	"disk": "size", "inodes": "count", "file size": "size", "open files": "count",
}

// limitKey is the key of a limit: its name in package job, as one word.
func limitKey(f job.Field) string { return strings.ReplaceAll(f.Name, " ", "_") }

// limitKeys are one for each of the limits.
func limitKeys(l *job.Limits) []key {
	var keys []key
	for _, f := range l.Fields() {
		keys = append(keys, key{limitKey(f), func(p *parser, n *yaml.Node) { p.limit(f, n) }})
	}
	return keys
}

// limitsKey is a mapping of limits.
func limitsKey(name string, l *job.Limits) key {
	return key{name, func(p *parser, n *yaml.Node) { p.mapping(name, n, limitKeys(l)) }}
}

func (p *parser) limit(f job.Field, n *yaml.Node) {
	p.limits[f.Value] = p.here(n)
	if n.Kind != yaml.ScalarNode || n.Value != unlimited {
		*f.Value = p.number(limitKey(f), limitForms[f.Name], n, f.Min, f.Max)
		return
	}
	if !f.Liftable {
		p.fail(n, "`%s`: cannot be unlimited", limitKey(f))
		return
	}
	*f.Value = job.Unlimited
}

// settle brings defaults and ceilings together. A default that is above a ceiling is an error, for every job that asks
// for nothing would be refused; but one of ours is lowered, and one of an earlier file than the ceiling.
func (p *parser) settle(defaults, ceilings *job.Limits) {
	top := ceilings.Fields()
	for i, f := range defaults.Fields() {
		most := *top[i].Value
		if most == 0 || most == job.Unlimited || *f.Value != job.Unlimited && *f.Value <= most {
			continue
		}
		if at, said := p.limits[f.Value]; said && at.nth >= p.limits[top[i].Value].nth {
			p.failAt(at, "`%s`: %s is above the ceiling, which is %s", limitKey(f), writeLimit(f, *f.Value), writeLimit(f, most))
		}
		*f.Value = most
	}
}

func writeLimit(f job.Field, value int64) string {
	if value == job.Unlimited {
		return unlimited
	}
	return forms[limitForms[f.Name]].write(value)
}
