// Corral-layer is what runs of ours as a job in a session's jail, as the session's user: it looks at what jobs have
// changed and applies it. The supervisor starts it in place of a program of the jail; it is no command for people.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"corral/workspace/changes/layer"
	"corral/workspace/image/unpack"
)

// tools are what the program is started as: its first argument.
func tools() map[string]func(ctx context.Context, args []string) error {
	return map[string]func(context.Context, []string) error{
		"changes": func(ctx context.Context, args []string) error { return layer.Run(ctx, args, os.Stdout) },
		"unpack":  func(_ context.Context, args []string) error { return unpack.Run(args, os.Stdin, os.Stdout) },
	}
}

func main() {
	// What is under way is ended in order, also when nobody reads any more.
	signal.Ignore(unix.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	if err := run(ctx, os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "corral-layer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		if tool := tools()[args[0]]; tool != nil {
			return tool(ctx, args[1:])
		}
	}
	return fmt.Errorf("started as %q, which is none of its tools", args)
}
