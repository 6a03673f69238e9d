package commands

import (
	"errors"
	"flag"
	"fmt"
	"strings"

	"corral/front/cli"
	"corral/internal/text"
	"corral/isolate/client/embed"
)

const completionHelp = `corral completion prints a script with which a shell completes the command line of corral.

Usage: corral completion bash|zsh|fish

It completes commands, options, and values: files, directories, and fixed words. It does not look up the names of sessions,
repositories or output, which would start a program at each key. Packages of corral install the scripts.

Examples:
  corral completion bash >~/.local/share/bash-completion/completions/corral
  corral completion zsh >~/.zfunc/_corral            with fpath+=~/.zfunc before compinit in ~/.zshrc
  corral completion fish >~/.config/fish/completions/corral.fish
`

// completion is the cli.Command of corral completion.
func completion(args []string) error {
	f := flag.NewFlagSet("completion", flag.ContinueOnError)
	if err := cli.ParseFlags(f, args, completionHelp); err != nil {
		return err
	}
	if err := embed.Drop(); err != nil {
		return err
	}
	switch {
	case f.NArg() == 0:
		return errors.New("no shell given: must be bash, zsh or fish\nhint: corral completion --help")
	case f.NArg() > 1:
		return fmt.Errorf("unexpected argument %q\nhint: corral completion --help", f.Arg(1))
	}
	var script strings.Builder
	write := Corral().Bash
	switch f.Arg(0) {
	case "bash":
	case "zsh":
		write = Corral().Zsh
	case "fish":
		write = Corral().Fish
	default:
		return fmt.Errorf("%s is not a supported shell: must be bash, zsh or fish\nhint: corral completion --help", text.Quote(f.Arg(0)))
	}
	if err := write(&script); err != nil {
		return err
	}
	return cli.Print(script.String())
}
