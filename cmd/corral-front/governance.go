package main

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"corral/internal/config"
	"corral/internal/text"
	"corral/policy"
	"corral/policy/runtimes"
	"corral/policy/starlark"
)

// newPolicy makes the policy of a configuration, with the programs of this host. Programs that are installed later are
// found, too.
func newPolicy(c config.Config) (*policy.Policy, error) {
	return policy.New(policyRules(c, os.Environ()), runtimes.Find(runtimes.Places{Toolchains: c.Toolchains, Never: repoPaths(c)}))
}

func repoIDs(c config.Config) []string {
	var ids []string
	for _, r := range c.Repos {
		ids = append(ids, r.ID)
	}
	return ids
}

func repoPaths(c config.Config) []string {
	var paths []string
	for _, r := range c.Repos {
		paths = append(paths, r.Path)
	}
	return paths
}

// policyRules converts a configuration to the types of package policy. environ is the environment of this process.
func policyRules(c config.Config, environ []string) policy.Rules {
	rules := policy.Rules{
		Enabled: c.Runtime.Enabled, Runtimes: c.Runtime.Runtimes, Executables: c.Runtime.Executables,
		RuntimeEnv: c.Runtime.RuntimeEnv, Environ: environ,
		// Jobs see the host's system directories, and toolchains read-only at their own paths.
		Rootfs:   strings.Join(append([]string{"host"}, c.Toolchains...), "\x00"),
		Starlark: starlarkRules(c),
	}
	total := memory()
	rooted, background := c, c
	rooted.Runtime.MaxDuration, background.Runtime.MaxDuration = c.Sandbox.MaxTimeout, c.Ctx.BackgroundLife
	for _, r := range c.Repos {
		s := c.For(r)
		bound(&s, total)
		rules.Repos = append(rules.Repos, policy.Repo{
			ID: r.ID, Path: r.Path, Runtimes: s.Runtimes, Env: s.Env, Defaults: s.Defaults, Ceilings: s.Ceilings,
			RootWall: rooted.For(r).Ceilings.Wall, BackgroundWall: background.For(r).Ceilings.Wall, StarlarkWall: starlarkWall(c, r),
			Workspace: s.Workspace, RootWorkspace: new(c.SandboxWorkspace(r)), Protect: s.Protect, Profile: s.Syscalls,
		})
	}
	if c.Runtime.Rules != "" {
		rules.Operator = starlark.Open(c.Runtime.Rules, repoPaths(c)...)
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

// serveDirectory adds the directory that a command line names to the repositories of a configuration, unless it has it.
func serveDirectory(c config.Config, dir string) (config.Config, error) {
	r, err := (&repoOptions{}).repo(self(), dir)
	if err != nil {
		return config.Config{}, err
	}
	for _, other := range c.Repos {
		switch {
		case other.Path == r.Path:
			return c, nil
		case other.ID == r.ID:
			return config.Config{}, fmt.Errorf("%s: the configuration already has a repository %q: %s\nhint: choose another id: corral repo add %s --id ID",
				text.Quote(r.Path), r.ID, text.Quote(other.Path), text.Quote(filepath.Clean(dir)))
		}
	}
	c.Repos = append(slices.Clone(c.Repos), r)
	return c, nil
}

// userPrincipal returns the principal of this process's user, as it is in requests and in the audit log.
func userPrincipal() string { return principalOf(uint32(os.Getuid())) }

// principalOf returns the principal of a user of this machine. The name is looked up by number: user.Current trusts
// $USER if the number has no entry.
func principalOf(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil && u.Username != "" {
		return "user:" + u.Username
	}
	return "user:" + id
}
