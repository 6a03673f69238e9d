package commands

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"corral/front/cli"
	"corral/front/server"
	"corral/internal/config"
	"corral/isolate/client/embed"
)

// configHelp is the help text of the command.
const configHelp = `corral config manages the configuration: ` + config.DefaultPath + `, which is the operator's and the
supervisor's, then for front-ends $XDG_CONFIG_HOME/corral/config.yaml (~/.config by default), each with the directories
repos.d and principals.d beside it.

Usage:
  corral config check [FILE]   report the mistakes in them, or in FILE with the directories beside it: exit code 1 if there
                               are any. Also check that only root can write to the operator's
  corral config show [FILE]    print the configuration of front-ends from all of them, or from FILE alone, with every value
  corral config init [FILE]    print an example with every key explained, or write it to a new FILE
  corral config schema         print the JSON Schema of a file, for editors
  corral config token NAME [--repos ID,...] [--tools NAME,...] [--write FILE]
                               make a token for a client of corral serve, and print it, this once. Its entry, which has the
                               token's SHA-256, is printed below it, or with --write written to a file of its own,
                               principals.d/NAME.yaml beside the configuration FILE
`

// configCommand is `corral config`, which checks, prints and creates configurations, and makes tokens.
func configCommand(args []string) error {
	if len(args) > 0 && args[0] == "token" {
		return configToken(args[1:])
	}
	f := flag.NewFlagSet("config", flag.ContinueOnError)
	if err := cli.ParseFlags(f, args, configHelp); err != nil {
		return err
	}
	path := f.Arg(1)
	switch verb := f.Arg(0); {
	case f.NArg() > 2 || f.NArg() == 0 || path != "" && verb == "schema":
		return cli.Misused("config", configHelp, f.Args())
	case verb == "check":
		return checkConfig(path)
	case verb == "show":
		return showConfig(path)
	case verb == "init":
		return createConfig(path)
	case verb == "schema":
		return cli.Print(config.Schema)
	default:
		return cli.Misused("config", configHelp, f.Args())
	}
}

// configSources returns the files that a front-end reads, or the one at path alone.
func configSources(path string) []config.Source {
	all := server.ConfigSources(path)
	if path == "" {
		return all
	}
	for _, s := range all {
		if s.Path == path {
			s.Optional = false
			return []config.Source{s}
		}
	}
	return nil
}

// checkConfig parses the files and lists those that exist.
func checkConfig(path string) error {
	_, files, err := server.LoadConfig(configSources(path))
	if err != nil {
		return cli.Exit(1, err)
	}
	if len(files) == 0 {
		return cli.Print("there is no " + config.DefaultPath + ": defaults apply\n")
	}
	text := ""
	for _, file := range files {
		text += file + ": ok\n"
	}
	return cli.Print(text)
}

// showConfig prints the configuration, with the files that it comes from.
func showConfig(path string) error {
	c, files, err := server.LoadConfig(configSources(path))
	if err != nil {
		return cli.Exit(1, err)
	}
	text := ""
	for _, file := range files {
		text += fmt.Sprintf("# %q\n", file)
	}
	return cli.Print(text + c.String())
}

// createConfig writes the built-in example and reads nothing, so root may name a file of root's.
func createConfig(path string) error {
	if path == "" {
		if err := embed.Drop(); err != nil {
			return err
		}
		return cli.Print(config.Example)
	}
	f, err := newConfigFile(path)
	if dropped := embed.Drop(); dropped != nil {
		return dropped
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(config.Example)
	return errors.Join(err, f.Close())
}

// newConfigFile creates a configuration file.
func newConfigFile(path string) (f *os.File, err error) {
	create := func() (err error) {
		f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		return err
	}
	if path != config.DefaultPath {
		err = embed.Configuring.At(path, create)
		return f, err
	}
	// Only the directory of the default path is created: another one that is missing is a mistake in the path.
	err = embed.Configuring.Do(func() error {
		if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		return create()
	})
	return f, err
}
