package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/internal/text"
	"corral/internal/usage"
	"corral/isolate/client"
	"corral/isolate/client/embed"
	"corral/job"
	"corral/policy/ask"
)

func sessionCommand(args []string) (int, error) {
	if len(args) == 0 {
		return 0, errors.New("no command given\nhint: corral session --help")
	}
	switch args[0] {
	case "open":
		return 0, sessionOpen(args[1:])
	case "exec":
		return sessionExec(args[1:])
	case "list":
		return 0, sessionList(args[1:])
	case "forward":
		return 0, execProgram("corral-front", append([]string{"session-forward"}, args[1:]...))
	case "close":
		return 0, sessionClose(args[1:])
	case "help", "--help", "-h":
		return 0, printText(usage.Session)
	}
	return 0, fmt.Errorf("session: unknown command %q\nhint: open, exec, list, forward or close", args[0])
}

// sessionFlags parses the options of a session command and returns the other arguments. If ended is true, it has printed
// the usage and the command has nothing left to do.
func sessionFlags(name string, args []string, more func(f *flag.FlagSet)) (rest []string, socket string, ended bool, err error) {
	f := flag.NewFlagSet("session "+name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Func("supervisor", "", nonEmpty(&socket))
	if more != nil {
		more(f)
	}
	rest, err = parseMixed(f, args)
	if errors.Is(err, flag.ErrHelp) {
		return nil, "", true, printText(usage.Session)
	}
	return rest, socket, false, err
}

// dialService connects to a supervisor that outlives this process. Its hint to root is not "run with sudo", which would
// start a supervisor for one job.
func dialService(socket string) (*client.Client, error) {
	c, err := dial(socket)
	if err != nil && socket == "" {
		message, _, _ := strings.Cut(err.Error(), "\nhint: ")
		if embed.Root() {
			return nil, fmt.Errorf("%s\nhint: a session outlives this command: start corrald as a service", message)
		}
	}
	return c, err
}

// dialKept connects to a supervisor that can list kept layers: the one on socket, or one of its own if root runs this and none
// listens, since root's corral run --workspace overlay keeps layers without a service. Then this process is no longer root. The
// caller calls the function after the last request.
func dialKept(socket string) (*client.Client, func(), error) {
	c, err := dial(socket)
	switch {
	case err == nil:
		return c, func() { c.Close() }, nil
	case socket != "" || !embed.Root() || !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED):
		return nil, nil, err
	}
	return startSupervisor(embed.Options{})
}

func sessionOpen(args []string) error {
	spec := job.SessionSpec{Repo: ".", Lasting: true, Share: true}
	rest, socket, ended, err := sessionFlags("open", args, func(f *flag.FlagSet) { openFlags(f, &spec) })
	switch {
	case ended || err != nil:
		return err
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q\nhint: corral session --help", rest[0])
	}
	spec.Root = spec.Root || spec.Image != ""
	if spec.Repo, err = directory.Absolute(spec.Repo); err != nil {
		return err
	}
	c, err := dialService(socket)
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := c.OpenSession(context.Background(), spec)
	if err != nil {
		return err
	}
	return printText(s.ID + "\n")
}

func openFlags(f *flag.FlagSet, spec *job.SessionSpec) {
	for name, to := range map[string]*string{
		"repo": &spec.Repo, "image": &spec.Image, "name": &spec.Name, "profile": &spec.Profile,
	} {
		f.Func(name, "", nonEmpty(to))
	}
	f.BoolVar(&spec.Root, "root", false, "")
	f.Func("workspace", "", func(s string) (err error) {
		spec.Workspace, err = job.ParseWorkspace(s)
		return err
	})
	f.Func("network", "", ask.Into(&spec.Network))
	f.Func("disk", "", parseInto(&spec.Disk, job.ParseSize))
	f.Func("idle", "", func(s string) (err error) {
		spec.Idle, err = job.ParseDuration(s)
		return err
	})
}

// sessionExec is "corral run --session ID" with the id as first argument. Options may stand before and after it.
func sessionExec(args []string) (int, error) {
	f := new(runOptions).flags() // tells the options before the id from their values
	err := parseFlags(f, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0, printText(usage.Run)
	case err != nil:
		return 0, err
	case f.Arg(0) == "":
		return 0, errors.New("no session given\nhint: corral session exec [--background] ID -- PROGRAM [ARG]; corral session list has the ids")
	}
	at := len(args) - f.NArg()
	before := args[:at]
	if at > 0 && args[at-1] == "--" {
		before = args[:at-1]
	}
	return runCommand(slices.Concat(before, []string{"--session", args[at]}, args[at+1:]))
}

// keep passes the job to corral-front, which takes the place of this process: it starts the job in the background, prints its id and
// leaves it to a process of its own.
func (o *runOptions) keep() error {
	c, err := dialService(o.supervisor)
	if err != nil {
		return err
	}
	if err := errors.Join(o.join(c), c.Close()); err != nil {
		return err
	}
	f, err := client.HandOver(o.spec)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Dup3(int(f.Fd()), 0, 0); err != nil {
		return fmt.Errorf("dup: %w", err)
	}
	args := []string{"session-background"}
	if o.supervisor != "" {
		args = append(args, "--supervisor", o.supervisor)
	}
	return execProgram("corral-front", args)
}

func sessionClose(args []string) error {
	discard := false
	ids, socket, ended, err := sessionFlags("close", args, func(f *flag.FlagSet) { f.BoolVar(&discard, "discard", false, "") })
	switch {
	case ended || err != nil:
		return err
	case len(ids) == 0:
		return errors.New("no session given\nhint: corral session list")
	}
	c, err := dialService(socket)
	if err != nil {
		return err
	}
	defer c.Close()
	var errs []error
	for _, id := range ids {
		errs = append(errs, closeOne(c, id, !discard))
	}
	return errors.Join(errs...)
}

func closeOne(c job.Sessions, id string, keep bool) error {
	s, err := job.FindSession(context.Background(), c, id, true)
	switch {
	case err != nil:
		return err
	case s.Kept && keep:
		return fmt.Errorf("session %q has already ended, and its changes are kept\nhint: corral changes show %s; --discard removes them", id, s.ID)
	}
	kept, err := c.CloseSession(context.Background(), s.ID, keep)
	if err == nil && kept {
		err = printText(s.ID + "\n")
	}
	return err
}

// sessionJSON is a session as printed by list --json.
type sessionJSON struct {
	ID        string    `json:"id"`
	Name      string    `json:"name,omitempty"`
	Repo      string    `json:"repo"`
	Image     string    `json:"image,omitempty"`
	Workspace string    `json:"workspace"`
	Root      bool      `json:"root"`
	Kept      bool      `json:"kept"`
	UID       uint32    `json:"uid"`
	User      string    `json:"user"`
	Opened    time.Time `json:"opened"`
	Used      time.Time `json:"used"`
	Jobs      int       `json:"jobs"`
	Disk      int64     `json:"diskBytes"`
	DiskUsed  int64     `json:"diskUsedBytes"`
	Ports     []uint16  `json:"ports"`
}

// portsFrom returns a function that asks at which ports the processes of a session listen, and whether there may be others. A
// session without jobs, or whose jobs share no network, has none.
func portsFrom(c *client.Client) func(s *job.Session) (ports []uint16, more bool) {
	return func(s *job.Session) (ports []uint16, more bool) {
		if s.Kept || s.Jobs == 0 {
			return nil, false
		}
		ports, more, err := c.Ports(context.Background(), s.ID)
		if err != nil { // it can have ended
			return nil, false
		}
		return ports, more
	}
}

// portsText returns the ports of a session for people.
func portsText(ports []uint16, more bool) string {
	var list []string
	for _, p := range ports {
		list = append(list, strconv.Itoa(int(p)))
	}
	const most = 6
	if more || len(list) > most {
		list = append(list[:min(len(list), most)], "…")
	}
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, ",")
}

func sessionList(args []string) error {
	asJSON := false
	rest, socket, ended, err := sessionFlags("list", args, func(f *flag.FlagSet) { f.BoolVar(&asJSON, "json", false, "") })
	switch {
	case ended || err != nil:
		return err
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q\nhint: corral session --help", rest[0])
	}
	c, finish, err := dialKept(socket)
	if err != nil {
		return err
	}
	defer finish()
	list, err := c.ListSessions(context.Background())
	if err != nil {
		return err
	}
	if !asJSON {
		return new(userNames).printSessions(list, portsFrom(c))
	}
	var names userNames
	for _, s := range list {
		ports, _ := portsFrom(c)(&s)
		if err := printJSON(sessionJSON{
			s.ID, s.Name, s.Repo, s.Image, s.Workspace.String(), s.Root, s.Kept, s.UID, names.Of(s.UID), s.Opened, s.Used, s.Jobs,
			s.Disk, s.DiskUsed, append([]uint16{}, ports...),
		}); err != nil {
			return err
		}
	}
	return nil
}

// printSessions prints a table of sessions.
func (n *userNames) printSessions(list []job.Session, ports func(*job.Session) (ports []uint16, more bool)) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SESSION\tNAME\tUSER\tSTATE\tPORTS\tLAYER\tWORKSPACE\tREPOSITORY")
	for _, s := range list {
		state := fmt.Sprintf("%d jobs", s.Jobs)
		since := time.Since(s.Used).Truncate(time.Second)
		switch {
		case s.Kept:
			state = fmt.Sprintf("kept %v", since)
		case s.Jobs == 0:
			state = fmt.Sprintf("idle %v", since)
		}
		kind := s.Workspace.String()
		if s.Root {
			kind += ", root"
			if s.Image != "" {
				kind += " " + text.Escape(s.Image)
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d of %d MiB\t%s\t%s\n",
			s.ID, text.Escape(s.Name), text.Escape(n.Of(s.UID)), state, portsText(ports(&s)), s.DiskUsed>>20, s.Disk>>20, kind, text.Escape(s.Repo))
	}
	return w.Flush()
}
