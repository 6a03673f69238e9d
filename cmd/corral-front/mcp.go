package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"corral/isolate/client"
	"corral/mcp"
)

const serverOptions = `  --repo DIR            serve this directory, under the id of its base name; repeatable. Without it, the repositories of
                        the configuration are served
  --account USER        root without sudo: whose directories they are, which are opened with that user's rights (default:
                        root's; with sudo they are always those of who called it)
  --config FILE         a configuration that holds above the operator's and the user's
  --supervisor SOCKET   have jobs run by the supervisor there (default ` + client.DefaultSocket + `; root starts one of its own)
  --tool-names WORD     plain: runtime_execute, as hosts want it (default); dotted: sdl.runtime.execute. Calls may use either
  --tools NAME,...      serve these tools only (default all that the configuration has): runtime_execute,
                        runtime_query_output, sandbox_exec, ctx_execute, ctx_execute_file, ctx_batch_execute,
                        ctx_search, ctx_index, ctx_job, ctx_jobs, ctx_stats, ctx_purge, starlark_run
  --log-level LEVEL     debug, info (default), warn or error; the log goes to standard error
`

const mcpHelp = `corral mcp serves agent hosts over the Model Context Protocol, on its standard input and output.

Usage: corral mcp [--repo DIR]... [--config FILE] [--supervisor SOCKET] [--tool-names WORD] [--tools NAME,...]
                  [--log-level LEVEL]

` + serverOptions + `
It needs no configuration: corral mcp --repo DIR serves DIR with safe defaults. Nothing is made or changed before the
first call of a tool. It ends with its input: calls under way have 30 seconds then. SIGTERM ends it at once, and with it
every job it has started.

Examples:
  corral mcp --repo ~/src/app
  claude mcp add corral -- corral mcp --repo ~/src/app
  sudo corral mcp --repo /srv/app          without a supervisor that runs as a service
`

func mcpCommand(args []string) (int, error) {
	s, ended, code, err := parseServing(flag.NewFlagSet("mcp", flag.ContinueOnError), args, mcpHelp)
	if ended {
		return code, err
	}
	s.alone = true
	ctx, stop := untilStopped()
	defer stop()
	b, err := s.backend()
	if err != nil {
		return failure, err
	}
	defer b.close()
	err = b.server.ServeStdio(ctx, os.Stdin, os.Stdout, mcp.Caller{Principal: userPrincipal()})
	if errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
		err = nil
	}
	if err != nil {
		return failure, err
	}
	return 0, nil
}

// untilStopped returns a context that ends when this process is told to end. A pipe or a socket that nobody reads is told
// of by the write: the signal would end the process at once when it is standard output, and says not which one it is, of
// clients' and of jobs' that have not read their input.
func untilStopped() (context.Context, context.CancelFunc) {
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	return signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
}
