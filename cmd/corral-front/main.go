// Corral-front has the commands of corral that are not needed for every job: servers, and commands for operators. People
// type corral, which executes this program.
//
// It has no privileges. Started through sudo, it gives root up first, except for what needs it (embed.Needs); started as root, it
// becomes another user before it parses anything. corrald does what needs privileges.
package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"corral/front/ci"
	"corral/front/cli"
	"corral/front/commands"
	"corral/front/server"
	"corral/internal/nearest"
	"corral/internal/usage"
	"corral/internal/version"
	"corral/isolate/client/embed"
)

// typed returns the commands that people type.
func typed() map[string]cli.Command {
	table := map[string]cli.Command{"version": versionCommand}
	for _, row := range commands.Table() {
		table[row.Name] = row.Run
	}
	return table
}

// helpers returns the commands that corral runs as helper processes, or in its place.
func helpers() map[string]cli.Command {
	return map[string]cli.Command{
		commands.Editor: commands.EditorCommand, server.ToolchainFinder: server.ToolchainCommand, embed.FindCommon: findCommonCommand,
		ci.Relay: ci.RelayCommand, commands.ForwardName: commands.ForwardCommand,
		commands.ReviewName:     commands.ReviewCommand,
		commands.BackgroundName: commands.BackgroundCommand, commands.KeeperName: commands.KeeperCommand,
	}
}

func main() {
	// Descriptors that the caller left open must not reach a supervisor started here, or any other child.
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	err := embed.Lower()
	if err == nil {
		err = dispatch(os.Args[1:])
	}
	os.Exit(cli.End(err))
}

func dispatch(args []string) error {
	if len(args) == 0 {
		return errors.New("no command given\nhint: corral help")
	}
	for _, table := range []map[string]cli.Command{typed(), helpers()} {
		if c := table[args[0]]; c != nil {
			return c(args[1:])
		}
	}
	if err := embed.Drop(); err != nil {
		return err
	}
	switch args[0] {
	case "help", "--help", "-h":
		return cli.Print(usage.Corral)
	}
	hint := "corral help"
	if near := nearest.Of(args[0], slices.Sorted(maps.Keys(typed()))); near != "" {
		hint = "did you mean corral " + near + "?"
	}
	return fmt.Errorf("%q is not a command of corral\nhint: %s", args[0], hint)
}

// findCommonCommand runs as a child of a front-end with an embedded supervisor, see embed.
func findCommonCommand(args []string) error { return embed.FindCommand(args) }

func versionCommand([]string) error {
	if err := embed.Drop(); err != nil {
		return err
	}
	return cli.Print("corral " + version.Version + "\n")
}
