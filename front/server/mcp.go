package server

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"

	"corral/front/cli"
	"corral/isolate/client"
	"corral/mcp/tool"
)

const serverOptions = `  --repo DIR            serve this directory, with its base name as id; repeatable (default: the repositories in
                        the configuration)
  --account USER        for root without sudo: open the directories with this user's rights (default root; with sudo
                        always the user who called it)
  --config FILE         read this configuration, too; it overrides the operator's and the user's
  --supervisor SOCKET   use the supervisor on this socket (default ` + client.DefaultSocket + `; root starts its own)
  --tool-names WORD     plain: runtime_execute, which hosts accept (default); dotted: sdl.runtime.execute. Calls may use
                        either
  --tools NAME,...      list only these tools (default: all that the configuration enables; an error lists the names);
                        agent stands for run and the other tools that replace an agent's shell. Others can still be
                        called: a principal's tools, and rules, restrict calls
  --structured          send replies of the ctx_ tools as JSON (structuredContent) too, and publish its schemas; without
                        this, their text is the whole reply
  --log-level LEVEL     debug, info (default), warn or error; the diagnostic log goes to standard error
`

// MCPHelp is the help text of corral mcp.
const MCPHelp = `corral mcp serves agent hosts over the Model Context Protocol, on its standard input and output.

Usage: corral mcp [--repo DIR]... [--config FILE] [--supervisor SOCKET] [--tool-names WORD] [--tools NAME,...]
                  [--structured] [--log-level LEVEL]

` + serverOptions + `
It needs no configuration: corral mcp --repo DIR serves DIR with safe defaults. It creates and changes nothing before the
first call of a tool. It reads a configuration that was changed again before the next call. When its input ends, calls in
progress have 30 seconds. SIGTERM ends it and all its jobs at once.

Examples:
  corral mcp --repo ~/src/app
  claude mcp add corral -- corral mcp --tools agent --repo ~/src/app
  sudo corral mcp --repo /srv/app          without a supervisor that runs as a service
`

// MCP is the cli.Command of corral mcp.
func MCP(args []string) error {
	s, err := parseServing(flag.NewFlagSet("mcp", flag.ContinueOnError), true, args, MCPHelp)
	if err != nil {
		return err
	}
	s.alone = true
	cli.IgnorePipes()
	ctx, stop := cli.UntilStopped()
	defer stop()
	b, server, err := s.serveTools()
	if err != nil {
		return err
	}
	defer b.Close()
	r := s.newReloader(b, &tokens{})
	r.prepare = s.replaceTools(b, server)
	s.before = r.follow(ctx)
	err = server.ServeStdio(ctx, os.Stdin, os.Stdout, tool.Caller{Principal: UserPrincipal()})
	if errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}
