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

// An environment maps names of variables to values.
type environment map[string]string

// base returns the variables that every job has. PATH is set later, from package runtimes.
func base() environment {
	return environment{
		"PATH": "", "HOME": job.Home, "TMPDIR": "/tmp", "USER": "job", "LOGNAME": "job", "SHELL": "/bin/sh",
		"LANG": "C.UTF-8", "TERM": "dumb",
		// Most jobs have no network, see online for others. With retries, each after a longer pause, a client takes a minute to
		// report that; so does one that asks for audits and new versions unbidden. What is in a cache is still found.
		"npm_config_fetch_retries": "0", "npm_config_audit": "false", "npm_config_fund": "false", "npm_config_update_notifier": "false",
		"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_BREAK_SYSTEM_PACKAGES": "1",
		"CARGO_NET_OFFLINE": "true", "GOPROXY": "off", "GOTOOLCHAIN": "local",
	}
}

// terminalType is TERM of a job with a terminal: a type that nearly all terminals understand.
const terminalType = "xterm-256color"

// own lists variables that are never copied from the front-end: they name directories of the job.
var own = []string{"PATH", "HOME", "TMPDIR"}

func (e environment) names() []string { return sortedNames(e) }

func sortedNames[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// list returns the environment as NAME=value strings, sorted.
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

// buildEnvironment denies variables that are configured for the runtime but missing from the repository's list. The
// list is about the front-end's variables: those that the client sets are its own data, like its arguments.
func buildEnvironment(_ context.Context, c *chain) []string {
	if reasons := c.askedEnv(); reasons != nil {
		return reasons
	}
	if c.isStarlark() {
		c.env = environment{} // the interpreter does not expose an environment to the program
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

// variables returns the environment as far as it is known. The code does not affect the names, so they are computed
// without it; the final plan, with the code, is made at the end.
func (c *chain) variables() environment {
	if c.env == nil && c.hasEnv {
		c.env = c.environment(nil)
	}
	return c.env
}

// path returns the PATH of commands, the same to all steps.
func (c *chain) path() string {
	if c.dirs == "" {
		c.dirs = c.p.installed.Path()
	}
	return c.dirs
}

// environment builds the job's environment. In ascending precedence: the base, those for caches, the front-end's variables that are on
// the list, the runtime's own, those configured for the runtime, and the client's.
func (c *chain) environment(runtimes []string) environment {
	e := base()
	if !c.r.Root { // such a job sees no toolchains
		e.add(c.p.installed.Caches())
	}
	online(e, c.repo.Network, c.network)
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
		e["PATH"] = c.path()
	case runtimes == nil:
		_, _, runtimes = c.choice.Plan(nil, nil)
	}
	e.add(runtimes)
	if c.r.Share { // what Python compiles is no change of the repository, and HOME keeps it for the next job
		e["PYTHONPYCACHEPREFIX"] = e["HOME"] + "/.cache/pycache"
		delete(e, "PYTHONDONTWRITEBYTECODE")
	}
	maps.Copy(e, c.p.rules.RuntimeEnv[c.r.Runtime])
	for name, value := range c.r.Env {
		if delete(e, name); value != nil {
			e[name] = *value
		}
	}
	return e
}

// minSecret is the minimum length in bytes of a secret: shorter values are too likely to occur in output by chance.
const minSecret = 8

// Secrets returns the values of variables that some job may get from the front-end or the configuration and that are
// long enough to be redacted from output: longest first, without duplicates. Variables that every job has, such as
// LANG and TZ, are not secrets.
func (p *Policy) Secrets() []string { return slices.Clone(p.secrets) }

func (p *Policy) secretValues() []string {
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
