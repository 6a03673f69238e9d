package commands

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"corral/front/cli"
	"corral/front/supervisor"
	"corral/internal/text"
	"corral/isolate/client"
	"corral/isolate/client/embed"
	"corral/isolate/wire"
	"corral/store/artifact"
)

// logsHelp is the help text of the command.
const logsHelp = `corral logs shows the output of a running job: one of yours, or any for root.

Usage: corral logs JOB [--follow] [--supervisor SOCKET]

  --follow              also -f: show also what the job writes from now on, until it ends
  --supervisor SOCKET   ask the supervisor on this socket (default: that of the service)

JOB is an id that corral ps prints. It shows the last 64 KiB of standard output and standard error, with secrets redacted, of
jobs whose output is stored: those of corral mcp, corral serve and corral session exec --background. Other jobs write to the
program that started them alone. When a job has ended, corral output shows its output. On a terminal, control characters are
shown as \u001b and the like.

Examples:
  corral ps
  corral logs -f job-4k7dq2mxwz
`

// logsCommand is `corral logs`, which shows the output of a running job.
func logsCommand(args []string) error {
	f := flag.NewFlagSet("logs", flag.ContinueOnError)
	follow := f.Bool("follow", false, "")
	f.BoolVar(follow, "f", false, "")
	socket := f.String("supervisor", "", "")
	rest, err := cli.ParseMixed(f, args, logsHelp)
	if err != nil {
		return err
	}
	if len(rest) != 1 {
		return errors.New("logs takes one argument: the id of a running job\nhint: corral ps lists them")
	}
	entry, err := findRunning(*socket, rest[0])
	if err != nil {
		return err
	}
	owner, err := becomeOwner(entry.UID)
	if err != nil {
		return err
	}
	return showLogs(entry, owner, *follow, os.Stdout)
}

// findRunning returns the running job with an id, which the supervisor lists to its user and to root alone.
func findRunning(socket, id string) (*wire.Entry, error) {
	c, err := supervisor.Dial(socket)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return runningJob(c, id)
}

func runningJob(c *client.Client, id string) (*wire.Entry, error) {
	list, err := c.List()
	if err != nil {
		return nil, err
	}
	n := slices.IndexFunc(list, func(e wire.Entry) bool { return e.Job == id })
	if n < 0 {
		return nil, fmt.Errorf("no running job %s\nhint: corral ps lists running jobs, corral output the stored output of those that have ended", text.Quote(id))
	}
	return &list[n], nil
}

// becomeOwner drops root to the user whose process has the output: the job's user or, of a job of root, the user that root's front-ends
// become. The output is untrusted.
func becomeOwner(uid uint32) (owner uint32, err error) {
	switch {
	case !embed.Root():
		return uid, nil
	case uid == 0:
		who, err := embed.Choose(embed.Nobody())
		if err != nil {
			return 0, err
		}
		return uint32(who.UID), who.Become()
	}
	return uid, embed.Identity{UID: int(uid), GID: embed.Nobody().GID}.Become()
}

// showLogs writes the output of a job, which a process of owner has, to w.
func showLogs(e *wire.Entry, owner uint32, follow bool, w *os.File) error {
	if e.Artifact == "" {
		return fmt.Errorf("the output of %s is not stored: it goes to the program that started it, as %s does", e.Job, text.Quote(cmp.Or(e.Tool, "corral run")))
	}
	out := cli.NewEscaper(w)
	skipped := func(n int64) {
		if n > 0 {
			cli.Note(fmt.Sprintf("%s before this are not shown", cli.FormatBytes(n)))
		}
	}
	err := artifact.Follow(context.Background(), e.Artifact, owner, follow, flushed{out}, skipped)
	if errors.Is(err, artifact.ErrNotLive) {
		return fmt.Errorf("%s shows no output: it may just have ended\nhint: corral output %s", e.Job, text.Quote(e.Artifact))
	}
	return errors.Join(err, out.Flush())
}

// flushed writes each piece of output at once.
type flushed struct{ *cli.Escaper }

var _ io.Writer = flushed{}

// Write implements io.Writer.
func (f flushed) Write(p []byte) (int, error) {
	n, err := f.Escaper.Write(p)
	return n, errors.Join(err, f.Flush())
}
