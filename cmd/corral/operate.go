package main

import (
	"errors"
	"flag"
	"fmt"
	"io"

	"corral/internal/text"
)

const reloadUsage = `corral reload makes the supervisor read its configuration again, without ending a job or a session. Only root may.

Usage: corral reload [--supervisor SOCKET]

New values apply to the requests that follow. If a file is faulty, the former configuration still applies, and the error
says what is wrong. Keys that a running supervisor cannot change, and repositories that are not served, are listed.
`

func reloadCommand(args []string) error {
	f := flag.NewFlagSet("reload", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	socket := f.String("supervisor", "", "")
	switch err := parseFlags(f, args); {
	case errors.Is(err, flag.ErrHelp):
		return printText(reloadUsage)
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
