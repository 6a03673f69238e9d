package server

import (
	"fmt"
	"slices"
	"strings"

	"corral/mcp/agent"
	mcpserver "corral/mcp/server"
	"corral/mcp/tool"

	"corral/front/telemetry"
	"corral/internal/config"
	"corral/internal/gate"
	"corral/internal/version"
	"corral/job"
)

// instructions describe the server to an agent.
const instructions = "corral runs code in a sandbox on one repository of this machine: runtime_execute runs it, " +
	"runtime_query_output reads what it wrote. ctx_execute runs code whose output alone comes back, long output is indexed, " +
	"and ctx_search finds what is in it. There is no network, except hosts that the operator allows. Whether files written in the repository stay there is the " +
	"operator's choice: replies say so where they are kept for review instead. sandbox_exec, where it is listed, runs " +
	"commands in a system of this session's own; its description says what becomes of the repository there. " +
	"starlark_run computes, and sees nothing of the machine."

// maxInstructionRepos is the number of repositories that instructions name.
const maxInstructionRepos = 50

// agentInstructions describe the server to an agent whose tools are those of package agent.
const agentInstructions = "These tools replace a shell on one repository of this machine: run runs commands in a sandbox, output reads " +
	"or searches what they wrote, job follows those in the background. There is no network, except hosts that the operator allows."

// shares returns which principals have the tools of package agent listed: all of their jobs share what those share.
func (s *serving) shares(c config.Config) func(principal string) bool {
	has := func(names []string) bool {
		return slices.ContainsFunc(agent.Expand(names), func(name string) bool { return slices.Contains(agent.Names(), name) })
	}
	s.principals = func() config.Principals { return c.Principals }
	if has(s.tools) {
		return func(string) bool { return true }
	}
	return func(principal string) bool {
		return slices.ContainsFunc(s.principals(), func(p config.Principal) bool { return tokenPrincipal(p) == principal && has(p.Tools) })
	}
}

// serveTools makes a back-end and an MCP server of it. The caller closes the back-end.
func (s *serving) serveTools() (*Backend, *mcpserver.Server, error) {
	b, err := s.backend()
	if err != nil {
		return nil, nil, err
	}
	tools, agents, err := b.Tools()
	if err == nil {
		tools, agents, err = s.chosen(tools, agents)
	}
	if err != nil {
		b.Close()
		return nil, nil, err
	}
	return b, s.newServer(b, tools, agents), nil
}

// newServer returns an MCP server for the tools of a back-end. It lists agents only to the callers whose tools are named.
func (s *serving) newServer(b *Backend, tools, agents []tool.Tool) *mcpserver.Server {
	repos := ""
	if s.alone {
		repos = " Repositories (repoId, default the first): " + strings.Join(repoList(b.Config), ", ") + "."
	}
	tracer := b.Tracer()
	if !s.alone {
		s.metrics = telemetry.NewMetrics(telemetry.MetricsOptions{
			Version: version.Version, Tools: published(tools, agents), Next: tracer, Stored: b.Stored,
			StoredLimit: b.Config.Artifacts.MaxBytes, Load: b.Load, Ready: gate.NewReadiness(b.Supervisor.Ready).Is,
		})
		tracer = s.metrics
	}
	return mcpserver.New(mcpserver.Options{
		Version: version.Version, Dotted: s.names == "dotted", Structured: s.structured, Instructions: func(names []string) string {
			if !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(agent.Names(), name) }) {
				return agentInstructions + repos
			}
			return instructions + repos
		},
		Log: b.Log, Tracer: tracer, Ended: b.End, Tools: tools, Unlisted: agents,
		Before: func() {
			if s.before != nil {
				s.before()
			}
		},
	})
}

// repoList returns the ids of the first repositories and, unless jobs write to the repository itself, how they see it.
func repoList(c config.Config) []string {
	var list []string
	for _, r := range c.Repos[:min(len(c.Repos), maxInstructionRepos)] {
		one := r.ID
		if w := c.Floor(r).Workspace; w != job.Direct {
			one += " (" + w.String() + ")"
		}
		list = append(list, one)
	}
	return list
}

// replaceTools returns a function that makes server follow another configuration, see reloader.prepare.
func (s *serving) replaceTools(b *Backend, server *mcpserver.Server) func(config.Config, []config.Repo) (func(), error) {
	return func(c config.Config, removed []config.Repo) (commit func(), err error) {
		tools, agents, err := b.Reload(c)
		if err == nil {
			tools, agents, err = s.chosen(tools, agents)
		}
		return func() { server.Replace(tools, agents, RepoIDs(removed)) }, err
	}
}

// published returns the names of all tools, by each name by which they can be called.
func published(lists ...[]tool.Tool) map[string]string {
	names := map[string]string{}
	for _, t := range slices.Concat(lists...) {
		d := t.Definition()
		names[d.Name] = d.Name
		if d.Dotted != "" {
			names[d.Dotted] = d.Name
		}
	}
	return names
}

// chosen returns the tools that --tools names, which are listed, and the others, which can be called all the same. Without the
// option, agents are the others.
func (s *serving) chosen(tools, agents []tool.Tool) (listed, unlisted []tool.Tool, err error) {
	if s.tools == nil {
		return tools, agents, nil
	}
	all := slices.Concat(tools, agents)
	var names []string
	for _, t := range all {
		names = append(names, t.Name())
	}
	chosen := agent.Expand(s.tools)
	for _, name := range chosen {
		if !slices.Contains(names, name) {
			return nil, nil, fmt.Errorf("--tools %q: the tools are %s, and %s for the last %d", name, strings.Join(names, ", "), agent.Group,
				len(agents))
		}
	}
	for _, t := range all {
		if slices.Contains(chosen, t.Name()) {
			listed = append(listed, t)
		} else {
			unlisted = append(unlisted, t)
		}
	}
	return listed, unlisted, nil
}
