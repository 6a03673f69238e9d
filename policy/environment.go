package policy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"corral/job"
)

// An environment is one that is being built, by name.
type environment map[string]string

// base are the variables that every job has. PATH is the toolchains' and the system's, as package lang has it.
func base() environment {
	return environment{
		"PATH": "", "HOME": "/home/job", "TMPDIR": "/tmp", "USER": "job", "LOGNAME": "job", "SHELL": "/bin/sh",
		"LANG": "C.UTF-8", "TERM": "dumb",
	}
}

// terminalType is TERM of a job with a terminal: what nearly all of them understand.
const terminalType = "xterm-256color"

// own are those that are never the front-end's: they name directories of the job.
var own = []string{"PATH", "HOME", "TMPDIR"}

func (e environment) names() []string { return sortedNames(e) }

func sortedNames[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// list is the environment as programs get it, sorted.
func (e environment) list() []string {
	list := make([]string, 0, len(e))
	for _, name := range e.names() {
		list = append(list, name+"="+e[name])
	}
	return list
}

func (e environment) add(list []string) {
	for _, pair := range list {
		if name, value, ok := strings.Cut(pair, "="); ok {
			e[name] = value
		}
	}
}

// buildEnvironment refuses variables that are configured for the runtime, and that the list does not have. What the client
// sets is of its own making, as its arguments are: the list is about the front-end's.
func buildEnvironment(_ context.Context, c *chain) []string {
	if reasons := c.askedEnv(); reasons != nil {
		return reasons
	}
	if c.isStarlark() {
		c.env = environment{} // which it could not see
		return nil
	}
	configured := c.p.rules.RuntimeEnv[c.r.Runtime]
	var outside []string
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		if !slices.Contains(c.repo.Env, name) {
			outside = append(outside, name)
		}
	}
	if len(outside) > 0 {
		return []string{fmt.Sprintf("Environment variables not in allowlist: [%s]", strings.Join(outside, ", "))}
	}
	c.hasEnv = true
	return nil
}

// variables are the environment, as far as there is one. What code there is makes no difference to the names; with the
// code, the plan is made at the end.
func (c *chain) variables() environment {
	if c.env == nil && c.hasEnv {
		c.env = c.environment(nil)
	}
	return c.env
}

// environment is what the job has: the base, then the front-end's variables that are on the list, then the runtime's own,
// then what is configured for it, then what the client asks for, of which a later one holds before an earlier.
func (c *chain) environment(runtimes []string) environment {
	e := base()
	if c.r.Terminal != (job.Size{}) {
		e["TERM"] = terminalType
	}
	if zone, ok := c.p.environ["TZ"]; ok {
		e["TZ"] = zone
	}
	for _, name := range c.repo.Env {
		if value, ok := c.p.environ[name]; ok && !slices.Contains(own, name) {
			e[name] = value
		}
	}
	switch {
	case c.missing != "", c.isCommand():
		e["PATH"] = c.p.installed.Path()
	case runtimes == nil:
		_, _, runtimes = c.choice.Plan(nil, nil)
	}
	e.add(runtimes)
	maps.Copy(e, c.p.rules.RuntimeEnv[c.r.Runtime])
	for name, value := range c.r.Env {
		if delete(e, name); value != nil {
			e[name] = *value
		}
	}
	return e
}

// minSecret is the length in bytes below which a value is too likely to be a word of its own in what jobs write.
const minSecret = 8

// Secrets returns the values of variables that some job may have from the front-end or the configuration, and that are
// long enough to be looked for in what jobs write: the longest first, each once. Those that every job has, such as LANG
// and TZ, are no secrets.
func (p *Policy) Secrets() []string {
	public := base()
	public["TZ"] = ""
	values := map[string]bool{}
	note := func(name, value string) {
		if _, ok := public[name]; !ok && len(value) >= minSecret {
			values[value] = true
		}
	}
	for _, r := range p.rules.Repos {
		for _, name := range r.Env {
			note(name, p.environ[name])
		}
	}
	for _, configured := range p.rules.RuntimeEnv {
		for name, value := range configured {
			note(name, value)
		}
	}
	return slices.SortedFunc(maps.Keys(values), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
	})
}
