// Corral-front has the commands of corral that are not needed for every job: servers, and commands for operators.
// People type corral, which executes this program.
//
// It has no privileges: started as root, it becomes another user before it parses anything (see package embed). corrald
// does what needs privileges.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"corral/internal/nearest"
	"corral/internal/text"
	"corral/internal/version"
	"corral/isolate/client/embed"
)

const usage = `corral-front has the commands of corral that are not needed for every job.

Usage:
  corral mcp                        serve agent hosts, over standard input and output
  corral serve                      serve agent hosts, over HTTP
  corral exec-server                serve clients of command/exec
  corral doctor                     report what this host can enforce
  corral config check|show|init     check, print or create a configuration
  corral repo add|list|remove       repositories in the configuration
  corral policy test REQUEST.json   explain the decision on a request
  corral output [HANDLE]            output of earlier jobs
  corral index stats|purge|rebuild  full-text index of that output
  corral changes show|diff|apply    changes that jobs of a session made behind an overlay
  corral rootfs import|list|remove  root file systems for sessions
  corral audit tail|show|verify     audit log
  corral version                    print the version

corral COMMAND --help describes a command.
`

// failure is the exit code for errors of corral itself, as opposed to a job's.
const failure = 125

// A command runs a command line and returns the program's exit code. It drops root.
type command func(args []string) (int, error)

func commands() map[string]command {
	return map[string]command{
		"mcp": mcpCommand, "serve": serveCommand, execServer: execServerCommand, "doctor": doctorCommand, "config": configCommand, "repo": repoCommand, "policy": policyCommand, editor: editorCommand, finder: finderCommand, embed.FindCommon: findCommonCommand, "audit": auditCommand, "output": outputCommand, "index": indexCommand, "changes": changesCommand, "rootfs": rootfsCommand, "version": versionCommand,
	}
}

func main() {
	// Descriptors that the caller left open must not reach a supervisor started here, or any other child.
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	code, err := dispatch(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, text.Lines("corral: "+err.Error()))
	}
	os.Exit(code)
}

func dispatch(args []string) (int, error) {
	if len(args) == 0 {
		return failure, errors.New("no command given\nhint: corral help")
	}
	if c := commands()[args[0]]; c != nil {
		return c(args[1:])
	}
	if err := dropRoot(); err != nil {
		return failure, err
	}
	switch args[0] {
	case "help", "--help", "-h":
		return say(usage)
	}
	hint := "corral help"
	known := slices.DeleteFunc(slices.Sorted(maps.Keys(commands())), func(name string) bool {
		return name == editor || name == finder || name == embed.FindCommon // which corral itself runs
	})
	if near := nearest.Of(args[0], known); near != "" {
		hint = "did you mean corral " + near + "?"
	}
	return failure, fmt.Errorf("%q is not a command of corral\nhint: %s", args[0], hint)
}

// findCommonCommand runs as a child of a front-end with an embedded supervisor, see embed.
func findCommonCommand(args []string) (int, error) { return 0, embed.FindCommand(args) }

func versionCommand([]string) (int, error) {
	if err := dropRoot(); err != nil {
		return failure, err
	}
	return say("corral " + version.Version + "\n")
}

// nobody is the user nobody:nogroup of the host, for commands that need no files. It is used if SUDO_UID is not set and
// there is no user corral. A client of a supervisor gets a user id of its own instead.
func nobody() embed.Identity { return embed.Identity{UID: 65534, GID: 65534} }

// dropRoot gives up root for commands that need no supervisor. It does nothing for other users.
func dropRoot() error {
	if os.Geteuid() != 0 {
		return nil
	}
	who, err := embed.Choose(nobody())
	if err != nil {
		return err
	}
	return who.Become()
}

func say(text string) (int, error) {
	if _, err := io.WriteString(os.Stdout, text); err != nil {
		return failure, err
	}
	return 0, nil
}

// parseFlags parses the options of a command into f. A request for help and an error end the command (ended), and root
// is dropped.
func parseFlags(f *flag.FlagSet, args []string, help string) (ended bool, code int, err error) {
	f.SetOutput(io.Discard)
	if err = nearest.ParseFlags(f, args, "corral "+f.Name()); err == nil {
		return false, 0, nil
	}
	if dropped := dropRoot(); dropped != nil {
		return true, failure, dropped
	}
	if errors.Is(err, flag.ErrHelp) {
		code, err = say(help)
		return true, code, err
	}
	return true, failure, err
}
