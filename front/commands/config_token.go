package commands

import (
	"errors"
	"flag"
	"strings"

	"corral/front/cli"
	"corral/internal/config"
	"corral/isolate/client/embed"
)

// configToken makes a token. The token goes to standard output alone; everything else has its hash.
func configToken(args []string) error {
	f := flag.NewFlagSet("config", flag.ContinueOnError)
	repos, tools, file := f.String("repos", "", ""), f.String("tools", "", ""), f.String("write", "", "")
	names, err := cli.ParseMixed(f, args, configHelp)
	if err != nil {
		return err
	}
	if len(names) != 1 {
		return errors.New("a token has one name: corral config token NAME\nhint: corral config --help")
	}
	token, hash := config.NewToken()
	entry := config.Edit{AddPrincipal: &config.Principal{
		Name: names[0], Hash: hash, Repos: cli.Separated(*repos), Tools: cli.Separated(*tools),
	}}
	if *file != "" {
		written, err := editConfig(*file, entry)
		if err = errors.Join(err, embed.Drop()); err != nil {
			return err
		}
		cli.Note("this token is not shown again; its hash is in " + written)
		return cli.Print(token + "\n")
	}
	if err := embed.Drop(); err != nil {
		return err
	}
	if _, _, _, err := entry.Apply("the entry", config.Files{}); err != nil {
		return err
	}
	cli.Note("this token is not shown again; add the lines below it to the configuration")
	lines := strings.ReplaceAll(strings.TrimSuffix(entry.Entry(), "\n"), "\n", "\n    ")
	return cli.Print(token + "\n\nprincipals:\n  - " + lines + "\n")
}
