package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"

	"corral/front/cli"
	"corral/front/supervisor"
	"corral/internal/usage"
	"corral/isolate/client/embed"
	"corral/isolate/wire"
	"corral/job"
)

// Bounds and default of --interval.
const (
	defaultInterval = time.Second
	minInterval     = 200 * time.Millisecond
	maxInterval     = time.Minute
)

// A supervision lists and ends jobs. *client.Client implements it.
type supervision interface {
	ListCommands() ([]wire.Entry, error)
	Denials() ([]wire.Denial, error)
	Kill(id string) error
}

// A source is what the command reads from.
type source struct {
	supervision
	sessions func() ([]job.Session, error)
	// uid is the user of this process: it follows the output of that user's jobs.
	uid uint32
}

// topCommand is the cli.Command of corral top.
func topCommand(args []string) error {
	f := flag.NewFlagSet("top", flag.ContinueOnError)
	interval := f.Duration("interval", defaultInterval, "")
	socket := f.String("supervisor", "", "")
	rest, err := cli.ParseMixed(f, args, usage.Top)
	if err != nil {
		return err
	}
	switch {
	case len(rest) > 0:
		err = fmt.Errorf("unexpected argument %q\nhint: corral top --help", rest[0])
	case *interval < minInterval || *interval > maxInterval:
		err = fmt.Errorf("--interval %v: must be %v to %v", *interval, minInterval, maxInterval)
	case !cli.IsTerminal(os.Stdin) || !cli.IsTerminal(os.Stdout):
		err = errors.New("corral top needs a terminal\nhint: corral ps --json prints the same for programs")
	}
	if err != nil {
		return err
	}
	c, err := supervisor.Dial(*socket)
	if dropped := embed.Drop(); dropped != nil { // the connection keeps the rights with which it was made
		return dropped
	}
	if err != nil {
		return err
	}
	defer c.Close()
	from := source{
		supervision: c, sessions: func() ([]job.Session, error) { return c.ListSessions(context.Background()) }, uid: uint32(os.Geteuid()),
	}
	last, err := tea.NewProgram(newModel(from, *interval)).Run()
	if err != nil {
		return err
	}
	if m, ok := last.(model); ok && m.fatal != nil {
		return m.fatal
	}
	return nil
}
