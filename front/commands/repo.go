package commands

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"corral/front/cli"
	"corral/front/server"
	"corral/internal/config"
	"corral/internal/text"
	"corral/internal/users"
	"corral/isolate/client/embed"
	"corral/job"
)

// repoHelp is the help text of the command.
const repoHelp = `corral repo manages the repositories in the configuration: yours, or with sudo the operator's,
` + config.DefaultPath + `.

Usage:
  corral repo list [--config FILE]        list those that front-ends serve, from all files that they read
  corral repo add DIR [--id ID] [--workspace direct|overlay|readonly] [--profile NAME] [--users NAME,...] [--config FILE]
                                          add a directory; clients call it ID (default: its base name)
  corral repo remove ID [--config FILE]   remove it again; nothing in the directory changes

A repository that is added gets a file of its own, repos.d/ID.yaml beside the configuration file, with the keys of an entry
of repos. Its jobs write as the directory's owner would, so only the owner may run some there, and with --users these users
and numbers of users, too. Removing it removes that file, or its lines in the configuration file if it is listed there. If your files have
repositories, those of the operator's file are not served by your front-ends: the last list applies.
`

// repoOptions is the command line of corral repo.
type repoOptions struct{ id, workspace, profile, users, file string }

// repoCommand is `corral repo`, which lists, adds and removes repositories of the configuration.
func repoCommand(args []string) error {
	var o repoOptions
	f := flag.NewFlagSet("repo", flag.ContinueOnError)
	f.StringVar(&o.id, "id", "", "")
	f.StringVar(&o.workspace, "workspace", "", "")
	f.StringVar(&o.profile, "profile", "", "")
	f.StringVar(&o.users, "users", "", "")
	f.StringVar(&o.file, "config", "", "")
	words, err := cli.ParseMixed(f, args, repoHelp)
	if err != nil {
		return err
	}
	verb := strings.Join(words[:min(1, len(words))], "")
	adds := o.id + o.workspace + o.profile + o.users
	switch {
	case verb == "list" && len(words) == 1 && adds == "":
		return o.list()
	case verb == "add" && len(words) == 2:
		return o.add(words[1])
	case verb == "remove" && len(words) == 2 && adds == "":
		return o.remove(words[1])
	}
	return cli.Misused("repo", repoHelp, words)
}

func (o *repoOptions) list() error {
	c, _, err := server.LoadConfig(server.ConfigSources(o.file))
	if err != nil {
		return err
	}
	if len(c.Repos) == 0 {
		cli.Note("no repository is listed: corral repo add DIR")
		return nil
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tWORKSPACE\tPROFILE\tPATH")
	for _, r := range c.Repos {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", text.Quote(r.ID), c.For(r).Workspace, cmp.Or(r.Profile, "default"), text.Quote(r.Path))
	}
	return w.Flush()
}

func (o *repoOptions) add(dir string) error {
	r, err := o.repository(dir)
	if err != nil {
		return err
	}
	before := o.served()
	path, err := editConfig(o.file, config.Edit{AddRepo: &r})
	if err = errors.Join(err, embed.Drop()); err != nil {
		return err
	}
	o.reportHidden(before)
	return cli.Print(fmt.Sprintf("repository %s is in %s\n", text.Quote(r.ID), path))
}

// repository returns the directory called name as the repository of the command line.
func (o *repoOptions) repository(name string) (config.Repo, error) {
	r, err := server.Repository(server.Self(), name)
	if errors.Is(err, os.ErrPermission) { // the operator lists directories of others, too
		err = embed.Configuring.Do(func() (err error) {
			r, err = server.Repository(server.Self(), name)
			return err
		})
	}
	if err != nil {
		return r, err
	}
	r.ID, r.Profile = cmp.Or(o.id, r.ID), o.profile
	if r.Users, err = o.allowed(*r.Owner); err != nil {
		return r, err
	}
	if o.workspace != "" {
		w, err := job.ParseWorkspace(o.workspace)
		if err != nil {
			return r, fmt.Errorf("--workspace %s: %w", text.Quote(o.workspace), err)
		}
		r.Workspace = &w
	}
	return r, nil
}

// allowed returns the users who may have jobs in a directory: its owner, and those of --users.
func (o *repoOptions) allowed(owner uint32) ([]uint32, error) {
	list := []uint32{owner}
	for _, name := range strings.FieldsFunc(o.users, func(r rune) bool { return r == ',' }) {
		uid, err := users.Parse(strings.TrimSpace(name))
		if err != nil {
			return nil, fmt.Errorf("--users %s: %s: %w", text.Quote(o.users), text.Quote(name), err)
		}
		if !slices.Contains(list, uid) {
			list = append(list, uid)
		}
	}
	return list, nil
}

func (o *repoOptions) remove(id string) error {
	path, err := editConfig(o.file, config.Edit{RemoveRepo: id})
	if err = errors.Join(err, embed.Drop()); err != nil {
		return err
	}
	return cli.Print(fmt.Sprintf("repository %s is no longer in %s\n", text.Quote(id), path))
}

// served returns the repositories that front-ends of this user serve. It returns nil if they are unknown, and for root,
// which edits the first file.
func (o *repoOptions) served() []config.Repo {
	if embed.Root() {
		return nil
	}
	c, err := config.LoadFront(server.ConfigSources("")...)
	if err != nil {
		return nil
	}
	return c.Repos
}

// reportHidden reports the repositories of an earlier file that are no longer served because this user now has a list.
func (o *repoOptions) reportHidden(before []config.Repo) {
	now := config.Config{Repos: o.served()}
	for _, r := range before {
		if _, there := now.Repo(r.ID); !there && len(now.Repos) > 0 {
			cli.Note(fmt.Sprintf("repository %s of an earlier file is no longer listed: the last list applies", text.Quote(r.ID)))
		}
	}
}
