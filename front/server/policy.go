package server

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/config"
	"corral/job"
	"corral/policy"
	"corral/policy/network"
	"corral/policy/runtimes"
	"corral/policy/starlark"
)

// NewPolicy makes the policy of a configuration, with the programs of this host. Programs that are installed later are
// found, too. Principals are bounded as p says.
func NewPolicy(c config.Config, p *Principals) (*policy.Policy, error) {
	return policy.New(policyRules(c, p, os.Environ()), runtimes.Find(runtimes.Places{Toolchains: c.Toolchains, Never: RepoPaths(c.Repos)}))
}

// policyRules converts a configuration to the types of package policy. environ is the environment of this process.
func policyRules(c config.Config, p *Principals, environ []string) policy.Rules {
	rules := policy.Rules{
		Enabled: c.Runtime.Enabled, Runtimes: c.Runtime.Runtimes, Executables: c.Runtime.Executables,
		RuntimeEnv: c.Runtime.RuntimeEnv, Environ: environ,
		// Jobs see the host's system directories, and toolchains read-only at their own paths.
		Rootfs:   strings.Join(append([]string{"host"}, c.Toolchains...), "\x00"),
		Starlark: starlarkRules(c), Network: policy.Network{Max: c.Runtime.Network, ByPrincipal: &p.Network, ByTool: c.Runtime.ToolNetwork},
	}
	total := memory()
	rooted, background := c, c
	rooted.Runtime.MaxDuration, background.Runtime.MaxDuration = c.Sandbox.MaxTimeout, c.Ctx.BackgroundLife
	for _, r := range c.Repos {
		s := c.For(r)
		bound(&s, total)
		rules.Repos = append(rules.Repos, policy.Repo{
			Network: hosts(c, r),
			ID:      r.ID, Path: r.Path, Runtimes: s.Runtimes, Env: s.Env, Defaults: s.Defaults, Ceilings: s.Ceilings,
			RootWall: rooted.For(r).Ceilings.Wall, BackgroundWall: background.For(r).Ceilings.Wall, StarlarkWall: starlarkWall(c, r),
			Workspace: s.Workspace, RootWorkspace: new(c.SandboxWorkspace(r)), Protect: s.Protect, Profile: s.Syscalls,
		})
	}
	if c.Runtime.Rules != "" {
		rules.Operator = starlark.Open(c.Runtime.Rules, RepoPaths(c.Repos)...)
	}
	return rules
}

// bound lowers a setting to what the host has, as the supervisor does where the operator set no ceiling: a default must
// not be refused on a small machine. total is the host's memory in bytes, 0 if unknown.
func bound(s *config.Setting, total int64) {
	if s.Ceilings.Memory == 0 {
		s.Ceilings.Memory = total
	}
	s.Defaults = s.Defaults.AtMost(s.Ceilings)
}

// memory returns the host's memory in bytes, 0 if the kernel does not report it.
func memory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// hosts returns what the operator allows the jobs of a repository to reach, nil for nothing.
func hosts(c config.Config, r config.Repo) *network.Set {
	rules := c.Rules(r)
	if rules == nil {
		return nil
	}
	set, err := network.Compile(rules)
	if err != nil {
		return nil // rules that were read are valid; corral-egress decides on them again
	}
	return set
}

// Principals are the bounds of principals, which apply to the next request after each Set.
type Principals struct {
	Quotas  job.Quotas
	Network policy.Maximums
}

// PrincipalsOf returns the bounds of a list of principals.
func PrincipalsOf(list config.Principals) *Principals {
	p := &Principals{}
	p.Set(list)
	return p
}

// Set replaces the bounds by those of a list of principals.
func (b *Principals) Set(list config.Principals) {
	quotas, network := map[string]job.Quota{}, map[string]string{}
	for _, p := range list {
		quotas[tokenPrefix+p.Name] = job.Quota{Jobs: p.MaxJobs, Output: p.OutputDaily}
		if p.Network != "" {
			network[tokenPrefix+p.Name] = p.Network
		}
	}
	b.Quotas.Set(quotas)
	b.Network.Set(network)
}

// starlarkRules returns the rules for Starlark programs.
func starlarkRules(c config.Config) policy.Starlark {
	return policy.Starlark{Enabled: c.Starlark.Enabled, Memory: c.Starlark.Memory}
}

// starlarkWall returns the longest time a Starlark job may take in a repository.
func starlarkWall(c config.Config, r config.Repo) time.Duration {
	c.Runtime.MaxDuration = c.Starlark.MaxWall + job.StarlarkGrace
	return c.For(r).Ceilings.Wall
}
