package main

import (
	"errors"
	"flag"
	"fmt"
	"io"

	"corral/internal/text"
	"corral/internal/usage"
)

func reloadCommand(args []string) error {
	f := flag.NewFlagSet("reload", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	socket := f.String("supervisor", "", "")
	switch err := parseFlags(f, args); {
	case errors.Is(err, flag.ErrHelp):
		return printText(usage.Reload)
	case err != nil:
		return err
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q\nhint: corral reload --help", f.Arg(0))
	}
	c, err := dial(*socket)
	if err != nil {
		return err
	}
	defer c.Close()
	notes, err := c.Reload()
	if err != nil {
		return fmt.Errorf("not reloaded: %w", err)
	}
	for _, note := range notes {
		if err := printText(text.Lines(note) + "\n"); err != nil {
			return err
		}
	}
	return nil
}
