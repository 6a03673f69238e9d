package main

import (
	"errors"
	"flag"
	"strings"

	"corral/internal/config"
)

// tokenCommand makes a token. The token goes to standard output alone; everything else has its hash.
func tokenCommand(args []string) (int, error) {
	f := flag.NewFlagSet("config", flag.ContinueOnError)
	repos, tools, file := f.String("repos", "", ""), f.String("tools", "", ""), f.String("write", "", "")
	names, ended, code, err := parseMixed(f, args, configHelp)
	if ended {
		return code, err
	}
	if len(names) != 1 {
		if err := dropRoot(); err != nil {
			return failure, err
		}
		return failure, errors.New("a token is for one name: corral config token NAME\nhint: corral config --help")
	}
	token, hash := config.NewToken()
	edit := config.Edit{AddPrincipal: &config.Principal{
		Name: names[0], Hash: hash, Repos: separated(*repos), Tools: separated(*tools),
	}}
	if *file != "" {
		written, err := editConfig(*file, edit)
		if err = errors.Join(err, dropRoot()); err != nil {
			return failure, err
		}
		note("this token is not shown again; its hash is in " + written)
		return say(token + "\n")
	}
	if err := dropRoot(); err != nil {
		return failure, err
	}
	if _, _, _, err := edit.Apply("the entry", config.Files{}); err != nil {
		return failure, err
	}
	note("this token is not shown again; what is below it belongs into the configuration")
	entry := strings.ReplaceAll(strings.TrimSuffix(edit.Entry(), "\n"), "\n", "\n    ")
	return say(token + "\n\nprincipals:\n  - " + entry + "\n")
}

// separated splits a list at commas; "" is nil.
func separated(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// parseMixed is parseFlags for commands whose options may come before and after their arguments.
func parseMixed(f *flag.FlagSet, args []string, help string) (rest []string, ended bool, code int, err error) {
	for {
		if ended, code, err := parseFlags(f, args, help); ended {
			return nil, true, code, err
		}
		if f.NArg() == 0 {
			return rest, false, 0, nil
		}
		rest, args = append(rest, f.Arg(0)), f.Args()[1:]
	}
}
