// Corral is the command people type. It starts once per job, so it is kept small: it implements run, agent, shell, ps, kill, reload,
// drain, session and version, and executes corral-top for top and corral-front for every other command. They are installed beside it
// or in the library directory of the same release. Agents call it as corral-shell.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"corral/internal/nearest"
	"corral/internal/usage"
	"corral/internal/version"
	"corral/isolate/client/embed"
	"corral/job"
)

func main() {
	// Descriptors that the caller left open must not leak into a supervisor or corral-front started from here.
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	if err := embed.Lower(); err != nil {
		printError(err)
		os.Exit(exitFailure)
	}
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == "corral-shell" { // a link to this program: agents name a shell by its path alone
		args = append([]string{"shell"}, args...)
	}
	os.Exit(dispatch(args))
}

func dispatch(args []string) int {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage.Corral)
		return exitFailure
	}
	code, err := run(args[0], args[1:])
	if err != nil {
		printError(err)
		if code != 0 && args[0] == "drain" {
			return code
		}
		return job.CodeOf(err)
	}
	return code
}

// An ownCommand is implemented here, or by a program of its own.
type ownCommand struct {
	name, help string
	run        func(args []string) (int, error)
}

// own returns the commands that corral-front does not implement.
func own() []ownCommand {
	plain := func(c func([]string) error) func([]string) (int, error) {
		return func(args []string) (int, error) { return 0, c(args) }
	}
	return []ownCommand{
		{"run", usage.Run, runCommand},
		{"agent", usage.Agent, agentCommand},
		{"shell", usage.Shell, shellCommand},
		{"ps", usage.Ps, plain(psCommand)},
		{"reload", usage.Reload, plain(reloadCommand)},
		{"kill", usage.Kill, plain(killCommand)},
		{"drain", usage.Drain, drainCommand},
		{"session", usage.Session, sessionCommand},
		{"top", usage.Top, plain(func(args []string) error { return execProgram("corral-top", args) })},
		{"version", usage.Corral, plain(func([]string) error { return printText("corral " + version.Version + "\n") })},
		{"help", usage.Corral, plain(help)},
	}
}

// find returns the command with a name, nil if corral-front implements it.
func find(name string) *ownCommand {
	switch name {
	case "--version", "-v":
		name = "version"
	case "--help", "-h":
		name = "help"
	}
	list := own()
	if n := slices.IndexFunc(list, func(c ownCommand) bool { return c.name == name }); n >= 0 {
		return &list[n]
	}
	return nil
}

func run(name string, args []string) (int, error) {
	if name == embed.FindCommon {
		return 0, embed.FindCommand(args)
	}
	if c := find(name); c != nil {
		return c.run(args)
	}
	return 0, execFront(append([]string{name}, args...))
}

// help prints the usage of the command in args[0], or of corral if args is empty.
func help(args []string) error {
	switch {
	case len(args) == 0:
		return printText(usage.Corral)
	case len(args) > 1 && args[0] != "session":
		return fmt.Errorf("unexpected argument %q\nhint: corral help %s", args[1], args[0])
	}
	if c := find(args[0]); c != nil {
		return printText(c.help)
	}
	return execFront([]string{args[0], "--help"})
}

// commands lists every command, including those that corral-front implements.
var commands = []string{
	"run", "agent", "shell", "ps", "kill", "reload", "drain", "session", "top", "version", "help",
	"audit", "cache", "changes", "ci", "codex-environment", "completion", "config", "doctor", "exec-server", "index", "logs", "mcp", "network",
	"output", "policy", "repo", "rootfs", "serve", "token",
}

// frontSlack is the timer slack of corral-front in nanoseconds: how late its timers may fire (prctl(2),
// PR_SET_TIMERSLACK).
const frontSlack = 500_000

// execFront replaces this process with corral-front, with the same arguments. corral-front gives up root as this process did
// (embed.Lower), before it reads any input.
func execFront(args []string) error {
	if !slices.Contains(commands, args[0]) {
		return unknownCommand(args[0], nearest.Of(args[0], commands))
	}
	if err := execProgram("corral-front", args); err != nil {
		return fmt.Errorf("command %q: %w", args[0], err)
	}
	return nil
}

// execProgram replaces this process with a program that is installed beside it.
func execProgram(name string, args []string) error {
	path, err := sibling(name)
	if err != nil {
		return err
	}
	// As the supervisor does for itself (see package isolate), so that the Go runtime's monitor thread wakes less often.
	// The new program inherits the slack of the thread that executes it.
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, frontSlack, 0, 0, 0)
	return syscall.Exec(path, append([]string{name}, args...), os.Environ())
}

func unknownCommand(name, near string) error {
	if near == "" {
		return fmt.Errorf("unknown command %q\nhint: corral help", name)
	}
	return fmt.Errorf("unknown command %q\nhint: did you mean corral %s?", name, near)
}
