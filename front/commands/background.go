package commands

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"corral/front/cli"
	"corral/internal/text"
	"corral/internal/usage"
	"corral/isolate/client/embed"
)

// BackgroundName is the name under which corral runs the command, in its own place, for `corral session exec --background`. Standard
// input is a job, see client.HandOver.
const BackgroundName = "session-background"

// A keeperReply is what the keeper says once, when the job runs and listens, runs for a while, or has not been started.
type keeperReply struct {
	Job      string   `json:"job"`
	Artifact string   `json:"artifact"` // handle of its output, which is stored when it has ended
	Ports    []uint16 `json:"ports"`    // at which the session's jobs listen
	More     bool     `json:"more"`     // there may be other ports
	Ended    string   `json:"ended"`    // how the job ended; "" if it runs
	Code     int      `json:"code"`     // exit code for Ended or Error
	Error    string   `json:"error"`    // why it was not started, with a hint
}

// maxKeeperReply is the maximum size of a reply in bytes: a session can listen at every port.
const maxKeeperReply = 1 << 20

// BackgroundCommand is `corral session exec --background`, which starts a job of a session and leaves it running.
//
// A job ends with the connection that started it, so a process of its own (the keeper) holds that: without a terminal, as the user
// who started it, until the job has ended. It stores the output where corral serve does, and shows it to corral logs meanwhile.
func BackgroundCommand(args []string) error {
	f := flag.NewFlagSet("session exec", flag.ContinueOnError)
	socket := f.String("supervisor", "", "")
	if err := cli.ParseFlags(f, args, usage.Session); err != nil {
		return err
	}
	keeper := exec.Command("/proc/self/exe", KeeperName, "--supervisor", *socket)
	keeper.Args[0], keeper.Dir, keeper.Stdin = "corral-front", "/", os.Stdin
	// A session of its own has no terminal, whose end would end the keeper (setsid(2)).
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdout, err := keeper.StdoutPipe()
	if err == nil {
		err = keeper.Start()
	}
	if err := errors.Join(err, embed.Drop()); err != nil {
		return err
	}
	said, err := io.ReadAll(io.LimitReader(stdout, maxKeeperReply))
	var r keeperReply
	if err == nil {
		err = json.Unmarshal(said, &r)
	}
	if err != nil {
		return fmt.Errorf("the process that keeps the job ended: %w", errors.Join(err, keeper.Wait()))
	}
	return r.print()
}

// print writes the job's id to standard output, for scripts, and all else to standard error.
func (r *keeperReply) print() error {
	if r.Error != "" {
		return cli.Exit(r.Code, errors.New(r.Error))
	}
	if err := cli.Print(text.Escape(r.Job) + "\n"); err != nil {
		return err
	}
	switch {
	case r.Ended != "":
		cli.Warn("%s has ended: %s\nhint: corral output %s", r.Job, r.Ended, r.Artifact)
	case len(r.Ports) > 0:
		cli.Note(r.listening())
	}
	return cli.Exit(r.Code, nil)
}

// maxListed is the maximum number of ports that are printed.
const maxListed = 16

func (r *keeperReply) listening() string {
	var list []string
	for _, p := range r.Ports[:min(len(r.Ports), maxListed)] {
		list = append(list, strconv.Itoa(int(p)))
	}
	if r.More || len(r.Ports) > maxListed {
		list = append(list, "…")
	}
	return "jobs of the session listen at port " + strings.Join(list, ", ")
}
