package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"corral/internal/config"
)

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

func configCommand(args []string) (int, error) {
	if len(args) > 0 && args[0] == "token" {
		return tokenCommand(args[1:])
	}
	f := flag.NewFlagSet("config", flag.ContinueOnError)
	if ended, code, err := parseFlags(f, args, configHelp); ended {
		return code, err
	}
	path := f.Arg(1)
	switch verb := f.Arg(0); {
	case f.NArg() > 2 || f.NArg() == 0 || path != "" && verb == "schema":
		return failure, errors.New("must be check, show, init, schema or token\nhint: corral config --help")
	case verb == "check":
		return checkConfig(path)
	case verb == "show":
		return showConfig(path)
	case verb == "init":
		return initConfig(path)
	case verb == "schema":
		return say(config.Schema)
	default:
		return failure, fmt.Errorf("%q is not a command of config\nhint: corral config --help", verb)
	}
}

// sources returns the files that a front-end reads, or the one at path alone.
func sources(path string) []config.Source {
	all := config.FrontSources(os.Getenv, path)
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

// loadConfig opens the files, as root if this is root, and then drops root's rights before it parses them.
func loadConfig(from []config.Source) (c config.Config, files []string, err error) {
	f, err := config.OpenFront(from...)
	if dropped := dropRoot(); dropped != nil {
		return c, nil, dropped
	}
	if err != nil {
		return c, nil, err
	}
	defer func() { _ = f.Close() }()
	c, err = f.Load()
	return c, f.Files(), err
}

func checkConfig(path string) (int, error) {
	_, files, err := loadConfig(sources(path))
	if err != nil {
		return 1, err
	}
	if len(files) == 0 {
		return say("there is no " + config.DefaultPath + ": defaults apply\n")
	}
	text := ""
	for _, file := range files {
		text += file + ": ok\n"
	}
	return say(text)
}

func showConfig(path string) (int, error) {
	c, files, err := loadConfig(sources(path))
	if err != nil {
		return 1, err
	}
	text := ""
	for _, file := range files {
		text += fmt.Sprintf("# %q\n", file)
	}
	return say(text + c.String())
}

// initConfig writes the built-in example and reads nothing, so root may name a file of root's.
func initConfig(path string) (int, error) {
	if path == "" {
		if err := dropRoot(); err != nil {
			return failure, err
		}
		return say(config.Example)
	}
	// Only the directory of the default path is created: another one that is missing is a mistake in the path.
	if path == config.DefaultPath {
		if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return failure, err
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if dropped := dropRoot(); dropped != nil {
		return failure, dropped
	}
	if err != nil {
		return failure, err
	}
	_, err = f.WriteString(config.Example)
	if err = errors.Join(err, f.Close()); err != nil {
		return failure, err
	}
	return 0, nil
}
