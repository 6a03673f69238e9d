// Corral-front is what of the command line corral leaves to it: all that is not needed for every job. People type corral,
// which executes it.
//
// It has no privileges: started as root it becomes somebody else before it reads anything (see package embed). What needs
// some is asked of corrald.
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
  corral doctor                     find out what this host can enforce
  corral config check|show|init     the configuration
  corral repo add|list|remove       the repositories in it
  corral policy test REQUEST.json   what would be decided on a request, and why
  corral output [HANDLE]            what earlier jobs of servers wrote
  corral index stats|purge|rebuild  the full-text index of it
  corral changes show|diff|apply    what jobs of a session changed behind an overlay
  corral rootfs import|list|remove  root file systems for sessions
  corral audit tail|show|verify     the log of what was run for whom
  corral version                    print the version

corral COMMAND --help explains each.
`

// failure is the exit code of corral's own failures.
const failure = 125

// A command returns the exit code of the program. It gives up root.
type command func(args []string) (int, error)

func commands() map[string]command {
	return map[string]command{
		"mcp": mcpCommand, "serve": serveCommand, execServer: execServerCommand, "doctor": doctorCommand, "config": configCommand, "repo": repoCommand, "policy": policyCommand, editor: editorCommand, finder: finderCommand, embed.FindCommon: findCommonCommand, "audit": auditCommand, "output": outputCommand, "index": indexCommand, "changes": changesCommand, "rootfs": rootfsCommand, "version": versionCommand,
	}
}

func main() {
	// What the caller left open is not for a supervisor started from here, nor for anybody else.
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
		return name == editor || name == finder || name == embed.FindCommon // which corral itself calls
	})
	if near := nearest.Of(args[0], known); near != "" {
		hint = "did you mean corral " + near + "?"
	}
	return failure, fmt.Errorf("%q is no command of corral\nhint: %s", args[0], hint)
}

// findCommonCommand is a child of an embedded supervisor's front-end, see embed.
func findCommonCommand(args []string) (int, error) { return 0, embed.FindCommand(args) }

func versionCommand([]string) (int, error) {
	if err := dropRoot(); err != nil {
		return failure, err
	}
	return say("corral " + version.Version + "\n")
}

// nobody is the host's user for what needs no files (nobody, nogroup), if there is neither who asked sudo nor user
// corral. A process of a supervisor's client has an id of its own instead.
func nobody() embed.Identity { return embed.Identity{UID: 65534, GID: 65534} }

// dropRoot is for commands that need no supervisor. It does nothing for who is not root.
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

// parseFlags reads the options of a command into f. A request for help and a mistake end the command, with root given up.
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
