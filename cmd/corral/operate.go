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

// operate parses the options of a command for operators, which takes one argument or none, and connects to the supervisor. missing says
// what is wrong without the argument; "" takes none. With a request for help it prints that, and c is nil.
func operate(f *flag.FlagSet, help, missing string, args []string) (rest []string, c *client.Client, err error) {
	f.SetOutput(io.Discard)
	socket := f.String("supervisor", "", "")
	n := min(1, len(missing))
	rest, err = parseMixed(f, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return nil, nil, printText(help)
	case err != nil:
		return nil, nil, err
	case len(rest) > n:
		return nil, nil, fmt.Errorf("unexpected argument %q\nhint: corral %s --help", rest[n], f.Name())
	case len(rest) < n:
		return nil, nil, errors.New(missing)
	}
	c, err = dial(*socket)
	return rest, c, err
}

func reloadCommand(args []string) error {
	_, c, err := operate(flag.NewFlagSet("reload", flag.ContinueOnError), usage.Reload, "", args)
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
	rest, c, err := operate(f, usage.Kill, "no job given\nhint: corral ps lists those that run", args)
	if c == nil {
		return err
	}
	defer c.Close()
	if err := c.Kill(rest[0]); err != nil {
		return err
	}
	for {
		list, err := c.List()
		if err != nil {
			return err
		}
		running := false
		for _, e := range list {
			running = running || e.Job == rest[0]
		}
		if !running {
			return nil
		}
		time.Sleep(pollInterval)
	}
}

// pollInterval is the time between two questions whether jobs still run.
const pollInterval = 50 * time.Millisecond
