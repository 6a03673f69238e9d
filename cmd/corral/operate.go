package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"corral/internal/text"
	"corral/internal/usage"
	"corral/isolate/client"
)

// operate parses the options of a command for operators, which takes n arguments, and connects to the supervisor. With a
// request for help it prints that, and c is nil.
func operate(f *flag.FlagSet, help string, n int, args []string) (c *client.Client, err error) {
	f.SetOutput(io.Discard)
	socket := f.String("supervisor", "", "")
	switch err := parseFlags(f, args); {
	case errors.Is(err, flag.ErrHelp):
		return nil, printText(help)
	case err != nil:
		return nil, err
	case f.NArg() > n:
		return nil, fmt.Errorf("unexpected argument %q\nhint: corral %s --help", f.Arg(n), f.Name())
	case f.NArg() < n:
		return nil, fmt.Errorf("missing argument\nhint: corral %s --help", f.Name())
	}
	return dial(*socket)
}

func reloadCommand(args []string) error {
	c, err := operate(flag.NewFlagSet("reload", flag.ContinueOnError), usage.Reload, 0, args)
	if c == nil {
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

// killCommand ends a job, and waits until it is gone.
func killCommand(args []string) error {
	f := flag.NewFlagSet("kill", flag.ContinueOnError)
	c, err := operate(f, usage.Kill, 1, args)
	if c == nil {
		return err
	}
	defer c.Close()
	if err := c.Kill(f.Arg(0)); err != nil {
		return err
	}
	for {
		list, err := c.List()
		if err != nil {
			return err
		}
		running := false
		for _, e := range list {
			running = running || e.Job == f.Arg(0)
		}
		if !running {
			return nil
		}
		time.Sleep(pollInterval)
	}
}

// pollInterval is the time between two questions whether jobs still run.
const pollInterval = 50 * time.Millisecond
