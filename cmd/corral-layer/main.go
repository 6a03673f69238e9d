// Corral-layer lists, applies and unpacks the contents of a session's layer, and edits files of a repository. It runs as a
// job in the jail of the session or repository, as the job's user. The supervisor starts it instead of a program of the
// jail; it is not meant to be run by hand.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"corral/workspace/changes/layer"
	"corral/workspace/edit"
	"corral/workspace/image/unpack"
)

// tools maps the program's first argument, its name, to the function that implements it.
func tools() map[string]func(ctx context.Context, args []string) error {
	return map[string]func(context.Context, []string) error{
		"changes":      func(ctx context.Context, args []string) error { return layer.Run(ctx, args, os.Stdout) },
		edit.Name:      func(_ context.Context, args []string) error { return edit.Run(args, os.Stdin, os.Stdout) },
		edit.FilesName: func(_ context.Context, args []string) error { return edit.RunFiles(args, os.Stdin, os.Stdout) },
		"unpack":       func(_ context.Context, args []string) error { return unpack.Run(args, os.Stdin, os.Stdout) },
	}
}

func main() {
	// Work in progress is finished or undone even if the reader of the output is gone.
	signal.Ignore(unix.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	if err := run(ctx, os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "corral-layer:", err)
		var failed *edit.FileError
		if errors.As(err, &failed) {
			os.Exit(failed.ExitCode())
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		if tool := tools()[args[0]]; tool != nil {
			return tool(ctx, args[1:])
		}
	}
	return fmt.Errorf("started as %q: must be changes, edit, files or unpack", args)
}
