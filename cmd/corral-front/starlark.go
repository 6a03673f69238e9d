package main

import (
	"slices"

	"corral/job"
	"corral/mcp/execute"
	"corral/mcp/tool"
)

// starlark returns starlark_run for the repositories in which its runtime is allowed, or no tool if there are none.
func (b *backend) starlark() []tool.Tool {
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
	return []tool.Tool{&execute.Starlark{Engine: b.engine, Repos: ids, Repo: c.Starlark.Repo}}
}
