package config

import (
	"slices"

	"corral/job"
)

// A Setting is what holds for the jobs that the runtime tools run in one repository.
type Setting struct {
	Defaults  job.Limits // for what a request does not ask; no field is zero, and none is above Ceilings
	Ceilings  job.Limits // the most that can be asked for; a zero field bounds nothing, and Wall is never zero
	Workspace job.Workspace
	Protect   job.Protection // of sensitive paths, where the workspace is direct
	Syscalls  string         // a profile of seccomp, never ""
	Env       []string       // names of the front-end's variables that a job may have
	Runtimes  []string       // that may be used, in the order of Runtime.Runtimes
}

// For returns what holds in a repository, which need not be one of the file's. What the repository says comes first, then
// its profile, then the sections of the file. Of ceilings the lowest holds. It is a function of its receiver and argument,
// and shares nothing with them.
func (c Config) For(r Repo) Setting {
	floor := c.Floor(r)
	s := Setting{
		Ceilings:  lowest(lowest(floor.Ceilings, c.Ceilings), job.Limits{Wall: c.Runtime.MaxDuration}),
		Workspace: floor.Workspace,
		Protect:   floor.Protect,
		Syscalls:  floor.Syscalls,
		Env:       slices.Clone(r.Env),
	}
	s.Defaults = r.Defaults.Or(c.profile(r.Profile).Defaults).Or(c.Runtime.Defaults).Or(c.Defaults).AtMost(s.Ceilings)
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

// A Floor is what the supervisor holds every job in a repository to, whatever a front-end made of the files.
type Floor struct {
	Ceilings  job.Limits // beside Config.Ceilings; a zero field bounds nothing
	Workspace job.Workspace
	Protect   job.Protection // at least
	Syscalls  string         // a profile of seccomp, never ""
}

// Floor returns what a repository and its profile say.
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

// SandboxWorkspace returns what a command of sandbox_exec may do to a repository. An agent takes the system that it is
// given for its own to delete, so the answer is Direct only if the configuration says so: in sandbox.workspace, or, where
// that is not set, in words for the repository or its profile. A repository or profile with a narrower workspace keeps it.
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

// Repo returns the repository of that id.
func (c Config) Repo(id string) (Repo, bool) {
	for _, r := range c.Repos {
		if r.ID == id {
			return r, true
		}
	}
	return Repo{}, false
}

// builtin are the profiles that every configuration has: those of system calls, and nothing else.
func builtin() []string { return []string{"default", "strict"} }

// profile returns the profile of that name, with its profile of system calls said.
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

// lowest returns the lower of each two ceilings, of which zero and Unlimited bound nothing.
func lowest(a, b job.Limits) job.Limits {
	from := b.Fields()
	for i, f := range a.Fields() {
		if *f.Value <= 0 || *from[i].Value > 0 && *from[i].Value < *f.Value {
			*f.Value = max(*from[i].Value, 0)
		}
	}
	return a
}
