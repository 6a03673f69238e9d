package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"corral/internal/text"
	"corral/job"
)

// printOutcome writes to standard error why the job ended, unless it simply exited, what it could not
// reach, and what it changed.
func printOutcome(r job.Result, o *runOptions, out *streams) {
	if why := reason(r, o); why != "" {
		fmt.Fprintln(os.Stderr, "corral:", why)
	}
	if why, hint := r.NoSpace(); why != "" {
		fmt.Fprintf(os.Stderr, "corral: %s\nhint: %s\n", why, hint)
	}
	if r.Limit == job.LimitMemory && o.spec.Session == "" {
		fmt.Fprintln(os.Stderr, "hint: files in its home directory, /tmp and /dev/shm are memory. Raise --memory, or run it in a session, which has the "+
			"first two on disk")
	}
	if hint := o.interactive(r); hint != "" {
		fmt.Fprintln(os.Stderr, "hint:", hint)
	}
	if r.ReadOnly && (o.workspaceSet || r.Code() != 0) {
		fmt.Fprintln(os.Stderr, "corral: the repository is read-only for jobs, by the operator's configuration or by its mount")
	}
	for _, line := range deniedLines(r.Network) {
		fmt.Fprintln(os.Stderr, line)
	}
	if note := r.GitNote(); note != "" {
		fmt.Fprintln(os.Stderr, "corral:", note)
	}
	if out.dropped() > 0 {
		fmt.Fprintf(os.Stderr, "corral: output limit reached: %d bytes dropped\n", out.dropped())
	}
	for _, note := range r.SensitiveNotes(len(r.Sensitive), text.Escape, "run --json lists them") {
		fmt.Fprintln(os.Stderr, "corral:", note)
	}
	if o.changes != "" {
		fmt.Fprintln(os.Stderr, "corral: changes:", o.changes)
	}
	if o.keepErr != nil {
		printError(o.keepErr)
	}
	for _, note := range []string{r.IncompleteNote(text.Escape), r.MountNote(text.Escape)} {
		if note != "" {
			fmt.Fprintln(os.Stderr, "corral:", note)
		}
	}
}

// shells are programs that read commands when they have no arguments.
var shells = []string{"bash", "sh", "dash", "zsh", "fish", "ksh", "python", "python3", "node", "irb", "php", "R", "iex", "lua", "sqlite3"}

// interactive returns a hint for a person at a terminal who started a shell without --tty: its standard input was empty,
// so it ended at once.
func (o *runOptions) interactive(r job.Result) string {
	args := o.spec.Args
	if o.tty || o.stdin || r.Status != job.Success || len(args) != 1 || !slices.Contains(shells, filepath.Base(args[0])) ||
		!isTerminal(os.Stdin) || !isTerminal(os.Stderr) {
		return ""
	}
	return fmt.Sprintf("%s had nothing to read: corral run --tty gives it your terminal", text.Escape(args[0]))
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// reason describes why a job ended, "" if it simply exited. A limit's value is only shown if the command line set it.
func reason(r job.Result, o *runOptions) string {
	asked := o.spec.Limits
	switch {
	case r.Status == job.Timeout:
		return "timeout" + amount(asked.Wall > 0, asked.Wall) + ": the job was ended"
	case r.Status == job.Lost:
		return "the job was ended from outside: its supervisor or jail ended"
	case r.Limit == job.LimitMemory:
		return "memory limit reached" + amount(asked.Memory > 0, job.FormatSize(asked.Memory)) + ": the job was ended"
	case r.Limit == job.LimitUserMemory:
		return "the memory of all your jobs reached user_memory" + amount(true, job.FormatSize(r.UserMemory)) + ": the job was ended"
	case r.Limit == job.LimitDisk:
		return "disk limit reached: the job was ended"
	case r.Limit == job.LimitFiles:
		return "inodes limit reached: the job was ended"
	case r.Limit == job.LimitLocks:
		return "limit of record locks (fcntl) reached: the job was ended"
	case r.Limit == job.LimitPIDs:
		return "pids limit reached" + amount(asked.PIDs > 0, asked.PIDs) + ": the job could not start more processes"
	case r.Stopped:
		return "the job was ended by corral kill"
	case r.Status == job.Cancelled:
		return "the job was killed: it did not end after the signal"
	case r.Signal != 0:
		return fmt.Sprintf("the job was ended by signal %d (%s)", r.Signal, signalName(r.Signal))
	}
	return ""
}

func amount(known bool, v any) string {
	if !known {
		return ""
	}
	return fmt.Sprintf(" (%v)", v)
}
