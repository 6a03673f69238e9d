package server

import (
	"slices"

	"corral/internal/config"
	"corral/job"
	"corral/mcp/execute"
	"corral/mcp/run"
	"corral/mcp/tool"
)

// starlarkTool returns starlark_run for the repositories in which its runtime is allowed, or no tool if there are none.
func starlarkTool(c config.Config, engine run.Engine) []tool.Tool {
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
	return []tool.Tool{&execute.Starlark{Engine: engine, Repos: ids, Repo: c.Starlark.Repo}}
}
