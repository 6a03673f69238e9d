package config

import (
	"slices"
	"time"

	"corral/job"
)

// A Setting is what applies to the jobs that the runtime tools run in one repository.
type Setting struct {
	Defaults  job.Limits // for limits that a request leaves unset; no field is zero, and none is above Ceilings
	Ceilings  job.Limits // maximum that can be requested; a zero field bounds nothing, and Wall is never zero
	Workspace job.Workspace
	Protect   job.Protection // of sensitive paths, where the workspace is direct
	Syscalls  string         // a profile of seccomp, never ""
	Env       []string       // names of the front-end's variables that a job may have
	Runtimes  []string       // allowed ones, in the order of Runtime.Runtimes
}

// For returns what applies in a repository, which need not be one of the configuration's. The repository takes precedence over its
// profile, and that over the sections of the configuration. Of several ceilings, the lowest applies. The result shares no memory
// with c or r.
func (c Config) For(r Repo) Setting {
	floor := c.Floor(r)
	s := Setting{
		Ceilings:  lowest(lowest(floor.Ceilings, c.Ceilings), job.Limits{Wall: c.Runtime.MaxDuration}),
		Workspace: floor.Workspace,
		Protect:   floor.Protect,
		Syscalls:  floor.Syscalls,
		Env:       slices.Clone(r.Env),
	}
	s.Defaults = c.defaults(r).AtMost(s.Ceilings)
	if r.Env == nil {
		s.Env = slices.Clone(c.Runtime.Env)
	}
	for _, name := range c.Runtime.Runtimes {
		if r.Runtimes == nil || slices.Contains(r.Runtimes, name) {
			s.Runtimes = append(s.Runtimes, name)
		}
	}
	return s
}

// defaults returns the limits of a job in a repository that requests none, whatever the ceilings are; no field is zero.
func (c Config) defaults(r Repo) job.Limits {
	return r.Defaults.Or(c.profile(r.Profile).Defaults).Or(c.Runtime.Defaults).Or(c.Defaults)
}

// usualTimeout is the timeout of a call that requests none, where the configuration sets none.
const usualTimeout = time.Minute

// Timeout returns the timeout of a call of runtime_execute in a repository that requests none, and the longest that a call can
// request.
func (c Config) Timeout(r Repo) (usual, longest time.Duration) {
	usual, longest = c.defaults(r).Wall, c.For(r).Ceilings.Wall
	if usual == job.Unlimited {
		usual = usualTimeout
	}
	return min(usual, longest), longest
}

// A Floor is what the supervisor enforces for every job in a repository, whatever a front-end requests.
type Floor struct {
	Ceilings  job.Limits // in addition to Config.Ceilings; a zero field bounds nothing
	Workspace job.Workspace
	Protect   job.Protection // at least
	Syscalls  string         // a profile of seccomp, never ""
}

// Floor returns what a repository and its profile set.
func (c Config) Floor(r Repo) Floor {
	profile := c.profile(r.Profile)
	f := Floor{Ceilings: lowest(r.Ceilings, profile.Ceilings), Protect: r.Protect, Syscalls: profile.Syscalls}
	switch {
	case r.Workspace != nil:
		f.Workspace = *r.Workspace
	case profile.Workspace != nil:
		f.Workspace = *profile.Workspace
	}
	return f
}

// SandboxWorkspace returns what a command of sandbox_exec may do to a repository. Agents delete files in the system that they are
// given, so the result is Direct only if the configuration says so explicitly: in sandbox.workspace or, if that is unset, for the
// repository or its profile. A repository or profile with a narrower workspace keeps it.
func (c Config) SandboxWorkspace(r Repo) job.Workspace {
	general := c.Floor(r).Workspace
	asked := job.Overlay
	switch {
	case c.Sandbox.Workspace != nil:
		asked = *c.Sandbox.Workspace
	case r.Workspace != nil, c.profile(r.Profile).Workspace != nil:
		asked = general
	}
	if general == job.ReadOnly || general == job.Overlay && asked == job.Direct {
		return general
	}
	return asked
}

// Repo returns the repository with an id.
func (c Config) Repo(id string) (Repo, bool) {
	for _, r := range c.Repos {
		if r.ID == id {
			return r, true
		}
	}
	return Repo{}, false
}

// profile returns the profile of a name, with Syscalls set.
func (c Config) profile(name string) Profile {
	p := c.Profiles[name]
	switch {
	case p.Syscalls != "":
	case slices.Contains(builtin(), name):
		p.Syscalls = name
	default:
		p.Syscalls = "default"
	}
	return p
}

// lowest returns the lower of each two ceilings. Zero and Unlimited bound nothing.
func lowest(a, b job.Limits) job.Limits {
	from := b.Fields()
	for i, f := range a.Fields() {
		if *f.Value <= 0 || *from[i].Value > 0 && *from[i].Value < *f.Value {
			*f.Value = max(*from[i].Value, 0)
		}
	}
	return a
}
