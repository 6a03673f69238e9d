package server

import (
	"slices"
	"time"

	"corral/internal/config"
	"corral/job"
	"corral/mcp/execute"
)

// newSandbox returns sandbox_exec for the repositories in which a shell may run, or nil if there are none. single is
// Options.Single.
func newSandbox(c config.Config, single bool) *execute.Sandbox {
	if !c.Sandbox.Enabled || !c.Runtime.Enabled {
		return nil
	}
	rooted := c
	rooted.Runtime.MaxDuration = c.Sandbox.MaxTimeout
	var longest time.Duration
	var ids []string
	workspaces := map[string]job.Workspace{}
	for _, r := range c.Repos {
		if !slices.Contains(c.For(r).Runtimes, "shell") {
			continue
		}
		ids = append(ids, r.ID)
		workspaces[r.ID] = c.SandboxWorkspace(r)
		longest = max(longest, rooted.For(r).Ceilings.Wall)
	}
	if len(ids) == 0 || c.Sandbox.Repo != "" && !slices.Contains(ids, c.Sandbox.Repo) {
		return nil
	}
	return &execute.Sandbox{
		Repos: ids, Repo: c.Sandbox.Repo, Workspaces: workspaces, Paths: PathsByID(c), Named: single,
		Timeout: c.Sandbox.Timeout, MaxTimeout: longest, OutputLimit: c.Sandbox.OutputLimit, Partial: c.Sandbox.PartialOutput,
	}
}
