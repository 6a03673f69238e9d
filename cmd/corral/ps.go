package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/text"
	"corral/internal/usage"
	"corral/internal/users"
	"corral/isolate/client"
	"corral/isolate/client/embed"
	"corral/isolate/wire"
)

func psCommand(args []string) error {
	f := flag.NewFlagSet("ps", flag.ContinueOnError)
	json := f.Bool("json", false, "")
	_, c, err := operate(f, usage.Ps, "", args)
	if c == nil {
		return err
	}
	defer c.Close()
	if err := embed.Drop(); err != nil { // the connection keeps the rights with which it was made; jobs chose their commands
		return err
	}
	names := userNames{}
	if *json {
		return names.showJSON(c)
	}
	return names.show(c)
}

// userNames prints lists with the names of users.
type userNames struct{ users.Names }

// show prints a table of jobs and one of sessions.
func (n *userNames) show(c *client.Client) error {
	list, err := c.ListCommands()
	if err != nil {
		return err
	}
	if err := n.printJobs(list); err != nil {
		return err
	}
	sessions, err := c.ListSessions(context.Background())
	if err != nil || len(sessions) == 0 {
		return err
	}
	if err := printText("\n"); err != nil {
		return err
	}
	return n.printSessions(sessions, portsFrom(c))
}

func (n *userNames) printJobs(list []wire.Entry) error {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "JOB\tUSER\tFOR\tCPU\tMEMORY\tWHAT\tREPOSITORY\tCOMMAND")
	for _, e := range list {
		age := time.Since(time.Unix(0, e.Started)).Truncate(time.Second / 10)
		cpu, memory := "-", "-"
		if e.CPU >= 0 {
			cpu = time.Duration(e.CPU).Truncate(10 * time.Millisecond).String()
		}
		if e.Memory >= 0 {
			memory = fmt.Sprintf("%.1f MiB", float64(e.Memory)/(1<<20))
		}
		what := e.Tool
		if e.Runtime != "" {
			what += " " + e.Runtime
		}
		if what == "" {
			what = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%v\t%s\t%s\t%s\t%s\t%s\n", e.Job, text.Escape(n.Of(e.UID)), age, cpu, memory, text.Escape(what),
			text.Escape(e.Repo), text.Escape(cmp.Or(e.Command, "-")))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 { // not a terminal
		return printText(table.String())
	}
	for line := range strings.Lines(table.String()) {
		if r := []rune(strings.TrimSuffix(line, "\n")); len(r) > int(size.Col) {
			line = string(r[:size.Col-1]) + "…\n"
		}
		if err := printText(line); err != nil {
			return err
		}
	}
	return nil
}

// jobJSON is a running job in the output of corral ps --json.
type jobJSON struct {
	Job        string   `json:"job"`
	UID        uint32   `json:"uid"`
	User       string   `json:"user"`
	Started    string   `json:"started"` // RFC 3339
	CPUMS      *float64 `json:"cpuMs"`
	PeakMemory *int64   `json:"peakMemoryBytes"`
	Memory     *int64   `json:"memoryBytes"` // now
	Repo       string   `json:"repo"`
	Tool       string   `json:"tool,omitempty"`
	Runtime    string   `json:"runtime,omitempty"`
	Command    string   `json:"command,omitempty"` // as a shell would take it, without secrets
	Principal  string   `json:"principal,omitempty"`
	Artifact   string   `json:"artifact,omitempty"` // handle for corral output
}

// showJSON prints one object per running job, each on a line.
func (n *userNames) showJSON(c *client.Client) error {
	list, err := c.ListCommands()
	if err != nil {
		return err
	}
	for _, e := range list {
		o := jobJSON{
			Job: e.Job, UID: e.UID, User: n.Of(e.UID), Started: time.Unix(0, e.Started).UTC().Format(time.RFC3339Nano),
			PeakMemory: orNull(e.Memory), Memory: orNull(e.MemoryNow), Repo: e.Repo, Tool: e.Tool, Runtime: e.Runtime, Command: e.Command,
			Principal: e.Principal,
			Artifact:  e.Artifact,
		}
		if e.CPU >= 0 {
			cpu := ms(time.Duration(e.CPU))
			o.CPUMS = &cpu
		}
		if err := printJSON(o); err != nil {
			return err
		}
	}
	return nil
}
