package main

import (
	"slices"
	"time"

	"corral/internal/config"
	"corral/job"
	"corral/mcp"
	"corral/policy"
)

// starlark returns starlark_run for the repositories in which its runtime is allowed, or no tool if there are none.
func (b *backend) starlark() []mcp.Tool {
	c := b.config
	if !c.Starlark.Enabled || !c.Runtime.Enabled {
		return nil
	}
	var ids []string
	for _, r := range c.Repos {
		if slices.Contains(c.For(r).Runtimes, job.Starlark) {
			ids = append(ids, r.ID)
		}
	}
	if len(ids) == 0 || c.Starlark.Repo != "" && !slices.Contains(ids, c.Starlark.Repo) {
		return nil
	}
	return []mcp.Tool{&mcp.Starlark{Engine: b.engine, Repos: ids, Repo: c.Starlark.Repo}}
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
