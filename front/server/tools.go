package server

import (
	"fmt"
	"slices"
	"strings"

	mcpserver "corral/mcp/server"
	"corral/mcp/tool"

	"corral/front"
	"corral/front/settings"
	"corral/internal/version"
)

// instructions describe the server to an agent.
const instructions = "corral runs code in a sandbox on one repository of this machine: runtime_execute runs it, " +
	"runtime_query_output reads what it wrote. ctx_execute runs code whose output alone comes back, long output is indexed, " +
	"and ctx_search finds what is in it. There is no network. Whether files written in the repository stay there is the " +
	"operator's choice: replies say so where they are kept for review instead. sandbox_exec, where it is listed, runs " +
	"commands in a system of this session's own; its description says what becomes of the repository there. " +
	"starlark_run computes, and sees nothing of the machine."

// maxInstructionRepos is the number of repositories that instructions name.
const maxInstructionRepos = 50

// serveTools makes a back-end and an MCP server of it. The caller closes the back-end.
func (s *serving) serveTools() (*front.Backend, *mcpserver.Server, error) {
	b, err := s.backend()
	if err != nil {
		return nil, nil, err
	}
	tools, err := b.Tools()
	if err == nil {
		tools, err = s.chosen(tools)
	}
	if err != nil {
		b.Close()
		return nil, nil, err
	}
	return b, s.newServer(b, tools), nil
}

// newServer returns an MCP server for the tools of a back-end.
func (s *serving) newServer(b *front.Backend, tools []tool.Tool) *mcpserver.Server {
	about, ids := instructions, settings.RepoIDs(b.Config)
	if s.alone {
		about += " Repositories (repoId): " + strings.Join(ids[:min(len(ids), maxInstructionRepos)], ", ") + "."
	}
	return mcpserver.New(mcpserver.Options{
		Version: version.Version, Dotted: s.names == "dotted", Instructions: about, Log: b.Log, Tracer: b.Tracer(), Ended: b.End, Tools: tools,
	})
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
