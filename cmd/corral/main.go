// Corral is the command people type. It is thin, for it is started once per job: what it does not do itself (run, ps,
// session, version) it leaves to corral-front, beside it or in the library directory of the same release.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"corral/internal/nearest"
	"corral/internal/text"
	"corral/internal/version"
	"corral/isolate/client/embed"
	"corral/job"
)

const usage = `corral runs other people's programs on your machine without trusting them.

Usage:
  corral run [OPTIONS] -- PROGRAM [ARG]...   run a program in a jail of its own
  corral session open|exec|list|close        jails that stay open, with a layer of their own
  corral ps                                  list the jobs that run, and sessions
  corral mcp [--repo DIR]                    serve an agent host, over standard input and output
  corral serve [--listen ADDRESS]            serve agent hosts, over HTTP
  corral exec-server [--repo DIR]            serve clients of command/exec, over JSON-RPC
  corral changes show|diff|apply|discard     what jobs of a session changed behind an overlay
  corral output [HANDLE]                     what earlier jobs of agents wrote
  corral index stats|purge|rebuild           the full-text index of it
  corral audit tail|show|verify|export       the log of what was run for whom
  corral policy test REQUEST.json            what would be decided on a request, and why
  corral repo add|list|remove                the repositories that are served
  corral config check|show|init|token        the configuration
  corral rootfs import|list|remove           root file systems for sessions
  corral doctor                              find out what this host can enforce
  corral version                             print the version
  corral help COMMAND                        explain a command

Without a running supervisor, sudo corral run starts one for the one job.
`

// Exit codes of corral's own; see also exitCode.
const (
	exitTimeout = 124
	exitFailure = 125
	exitNoExec  = 126
	exitMissing = 127
)

func main() {
	// What the caller left open is not for a supervisor started from here, nor for anybody else.
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	os.Exit(dispatch(os.Args[1:]))
}

func dispatch(args []string) int {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return exitFailure
	}
	var err error
	code := 0
	switch args[0] {
	case "run":
		code, err = runCommand(args[1:])
	case "ps":
		err = psCommand(args[1:])
	case "session":
		code, err = sessionCommand(args[1:])
	case "version", "--version", "-v":
		err = printText("corral " + version.Version + "\n")
	case embed.FindCommon:
		err = embed.FindCommand(args[1:])
	case "help", "--help", "-h":
		err = help(args[1:])
	default:
		err = execFront(args)
	}
	if err != nil {
		printError(err)
		return errorCode(err)
	}
	return code
}

func printText(text string) error {
	_, err := io.WriteString(os.Stdout, text)
	return err
}

// help explains the command that args name.
func help(args []string) error {
	switch {
	case len(args) == 0:
		return printText(usage)
	case args[0] == "run":
		return printText(runUsage)
	case args[0] == "ps":
		return printText(psUsage)
	case args[0] == "session":
		return printText(sessionUsage)
	case args[0] == "version", args[0] == "help", args[0] == "--help", args[0] == "-h":
		return printText(usage)
	}
	return execFront([]string{args[0], "--help"})
}

// printError writes an error to standard error, on one line that is marked as corral's, and its hint on another.
func printError(err error) {
	message, hint, hinted := strings.Cut(err.Error(), "\nhint: ")
	fmt.Fprintf(os.Stderr, "corral: %s\n", text.Escape(message))
	if hinted {
		fmt.Fprintf(os.Stderr, "hint: %s\n", text.Escape(hint))
	}
}

// errorCode is the exit code for an error: what shells use for a program that is missing or cannot be executed, else
// corral's own.
func errorCode(err error) int {
	var refusal *job.Refusal
	if !errors.As(err, &refusal) || refusal.Step != "exec" {
		return exitFailure
	}
	if errno := syscall.Errno(refusal.Errno); errno == unix.ENOENT || errno == unix.ENOTDIR {
		return exitMissing
	}
	return exitNoExec
}

// commands are all of corral's; it is corral-front that knows those which are not in dispatch.
var commands = []string{
	"run", "ps", "session", "version", "help",
	"audit", "changes", "config", "doctor", "exec-server", "index", "mcp", "output", "policy", "repo", "rootfs", "serve",
}

// frontSlack is by how much what waits in corral-front may wait longer, in nanoseconds.
const frontSlack = 500_000

// execFront executes corral-execFront with the same arguments. It gives up root itself, before it reads anything else.
func execFront(args []string) error {
	if !slices.Contains(commands, args[0]) {
		return unknownCommand(args[0], nearest.Of(args[0], commands))
	}
	path, err := sibling("corral-front")
	if err != nil {
		return fmt.Errorf("command %q: %w", args[0], err)
	}
	// As the supervisor does for itself (see package isolate): Go's monitor sleeps longer at a time. A program keeps the slack of
	// the thread that executes it.
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, frontSlack, 0, 0, 0)
	return syscall.Exec(path, append([]string{"corral-front"}, args...), os.Environ())
}

func unknownCommand(name, near string) error {
	if near == "" {
		return fmt.Errorf("%q is no command of corral\nhint: corral help", name)
	}
	return fmt.Errorf("%q is no command of corral\nhint: did you mean corral %s?", name, near)
}

// sibling finds a program of the same release: beside this one, or in the library directory beside its directory.
func sibling(name string) (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	for _, dir := range []string{filepath.Dir(exe), filepath.Join(filepath.Dir(exe), "..", "lib", "corral")} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed beside %s", name, exe)
}
