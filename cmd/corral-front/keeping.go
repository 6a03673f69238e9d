package main

import (
	"fmt"
	"slices"
	"strings"

	"corral/job"
	"corral/mcp/execute"
	"corral/mcp/tool"
	"corral/workspace/changes"
	"corral/workspace/session"
)

// sessionManager returns the manager of the sessions of this server's clients. Over HTTP a session expires when it is
// idle; a client on standard input has one, which ends with its connection.
func (s *serving) sessionManager(b *backend) *session.Manager {
	c := b.config
	o := session.Options{
		Sessions: b.supervisor, PerPrincipal: c.Sandbox.MaxSessions, Log: b.log,
		Root: job.SessionSpec{Image: c.Sandbox.Image, Disk: c.Sandbox.Disk},
	}
	if !s.alone {
		o.RootIdle, o.OverlayIdle = c.Sandbox.SessionTimeout, c.HTTP.SessionIdle
	}
	return session.New(o)
}

// sandbox returns sandbox_exec for the repositories in which a shell may run, or no tool if there are none.
func (s *serving) sandbox(b *backend, secrets []string) []tool.Tool {
	c := b.config
	if !c.Sandbox.Enabled || !c.Runtime.Enabled {
		return nil
	}
	var ids []string
	path, workspaces := "", map[string]job.Workspace{}
	for _, r := range c.Repos {
		if !slices.Contains(c.For(r).Runtimes, "shell") {
			continue
		}
		if s.alone && (r.ID == c.Sandbox.Repo || c.Sandbox.Repo == "" && ids == nil) {
			path = r.Path
		}
		ids = append(ids, r.ID)
		workspaces[r.ID] = c.SandboxWorkspace(r)
	}
	if len(ids) == 0 || c.Sandbox.Repo != "" && !slices.Contains(ids, c.Sandbox.Repo) {
		return nil
	}
	return []tool.Tool{&execute.Sandbox{
		Engine: b.engine, Outputs: b.outputs, Secrets: secrets, Repos: ids, Repo: c.Sandbox.Repo, Workspaces: workspaces, Path: path,
		Timeout: c.Sandbox.Timeout, OutputLimit: c.Sandbox.OutputLimit, Partial: c.Sandbox.PartialOutput,
	}}
}

// chosen returns those of the tools that --tools names.
func (s *serving) chosen(tools []tool.Tool) ([]tool.Tool, error) {
	if s.tools == nil {
		return tools, nil
	}
	var names []string
	for _, t := range tools {
		names = append(names, t.Name())
	}
	for _, name := range s.tools {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("--tools %q: the tools are %s", name, strings.Join(names, ", "))
		}
	}
	return slices.DeleteFunc(tools, func(t tool.Tool) bool { return !slices.Contains(s.tools, t.Name()) }), nil
}

// layerOf returns the layer of the session of spec, to be examined for tool by a job of its own.
func layerOf(spec job.Spec, tool string) changes.Layer {
	l := changes.Layer{Session: spec.Session, Repo: spec.Repo, Claim: spec.Claim}
	l.Claim.Tool = tool
	return l
}
