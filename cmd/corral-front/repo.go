package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"corral/internal/config"
	"corral/internal/directory"
	"corral/internal/text"
	"corral/isolate/client"
	"corral/job"
)

const repoHelp = `corral repo manages the repositories in the configuration: yours, or with sudo the operator's,
` + config.DefaultPath + `.

Usage:
  corral repo list [--config FILE]        list those that front-ends serve, from all files that they read
  corral repo add DIR [--id ID] [--workspace direct|readonly] [--profile NAME] [--config FILE]
                                          add a directory; clients call it ID (default: its base name)
  corral repo remove ID [--config FILE]   remove it again; nothing in the directory changes

A repository that is added gets a file of its own, repos.d/ID.yaml beside the configuration file, with the keys of an entry
of repos. Removing it removes that file, or its lines in the configuration file if it is listed there. If your files have
repositories, those of the operator's file are not served by your front-ends: the last list applies.
`

// A repoOptions is the command line of corral repo.
type repoOptions struct{ id, workspace, profile, file string }

func repoCommand(args []string) (int, error) {
	var o repoOptions
	f := flag.NewFlagSet("repo", flag.ContinueOnError)
	f.StringVar(&o.id, "id", "", "")
	f.StringVar(&o.workspace, "workspace", "", "")
	f.StringVar(&o.profile, "profile", "", "")
	f.StringVar(&o.file, "config", "", "")
	words, ended, code, err := parseMixed(f, args, repoHelp)
	if ended {
		return code, err
	}
	verb := strings.Join(words[:min(1, len(words))], "")
	adds := o.id + o.workspace + o.profile
	switch {
	case verb == "list" && len(words) == 1 && adds == "":
		return o.list()
	case verb == "add" && len(words) == 2:
		return o.add(words[1])
	case verb == "remove" && len(words) == 2 && adds == "":
		return o.remove(words[1])
	}
	if err := dropRoot(); err != nil {
		return failure, err
	}
	return failure, errors.New("must be list, add DIR or remove ID\nhint: corral repo --help")
}

func (o *repoOptions) list() (int, error) {
	c, _, err := loadConfig(config.FrontSources(os.Getenv, o.file))
	if err != nil {
		return failure, err
	}
	if len(c.Repos) == 0 {
		note("no repository is listed: corral repo add DIR")
		return 0, nil
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tWORKSPACE\tPROFILE\tPATH")
	for _, r := range c.Repos {
		profile := r.Profile
		if profile == "" {
			profile = "default"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", text.Quote(r.ID), c.For(r).Workspace, profile, text.Quote(r.Path))
	}
	return 0, w.Flush()
}

func (o *repoOptions) add(dir string) (int, error) {
	r, err := o.repo(self(), dir)
	if err != nil {
		return failure, errors.Join(err, dropRoot())
	}
	before := o.served()
	path, err := editConfig(o.file, config.Edit{AddRepo: &r})
	if err = errors.Join(err, dropRoot()); err != nil {
		return failure, err
	}
	o.tellHidden(before)
	return say(fmt.Sprintf("repository %s is in %s\n", text.Quote(r.ID), path))
}

// openRepo opens the directory of a new repository with the rights of the account.
func openRepo(whose directory.Account, name string) (*os.File, error) {
	path, err := directory.Absolute(name)
	if err != nil {
		return nil, err
	}
	if !utf8.ValidString(path) {
		return nil, fmt.Errorf("%q is not UTF-8: a configuration cannot have it", path)
	}
	if err := client.CheckPrivate(path); err != nil {
		return nil, err
	}
	dir, err := whose.Open(path)
	switch {
	case errors.As(err, new(*directory.LinkError)):
		return nil, fmt.Errorf("repository %w\nhint: %s", err, directory.LinkHint)
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("there is no directory %q", name)
	case errors.Is(err, unix.ENOTDIR):
		return nil, fmt.Errorf("%s is not a directory", path)
	}
	return dir, err
}

// self is the account of this process.
func self() directory.Account { return directory.Account{UID: uint32(os.Geteuid())} }

// repo returns the repository of the command line. Its path has no symbolic links: one could point elsewhere later. Its owner is
// the present owner of the directory.
func (o *repoOptions) repo(whose directory.Account, name string) (config.Repo, error) {
	dir, err := openRepo(whose, name)
	if err != nil {
		return config.Repo{}, err
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return config.Repo{}, fmt.Errorf("fstat %s: %w", dir.Name(), err)
	}
	path := dir.Name()
	r := config.Repo{ID: o.id, Path: path, Owner: &st.Uid, Profile: o.profile}
	if r.ID == "" {
		r.ID = filepath.Base(path)
	}
	if o.workspace != "" {
		w, err := job.ParseWorkspace(o.workspace)
		if err != nil {
			return config.Repo{}, err
		}
		r.Workspace = &w
	}
	return r, nil
}

func (o *repoOptions) remove(id string) (int, error) {
	path, err := editConfig(o.file, config.Edit{RemoveRepo: id})
	if err = errors.Join(err, dropRoot()); err != nil {
		return failure, err
	}
	return say(fmt.Sprintf("repository %s is no longer in %s\n", text.Quote(id), path))
}

// served returns the repositories that front-ends of this user serve. It returns nil if they are unknown, and for root, whose
// file is the first one.
func (o *repoOptions) served() []config.Repo {
	if os.Geteuid() == 0 {
		return nil
	}
	c, err := config.LoadFront(config.FrontSources(os.Getenv, "")...)
	if err != nil {
		return nil
	}
	return c.Repos
}

// tellHidden reports the repositories of an earlier file that are no longer served because this user now has a list.
func (o *repoOptions) tellHidden(before []config.Repo) {
	now := config.Config{Repos: o.served()}
	for _, r := range before {
		if _, there := now.Repo(r.ID); !there && len(now.Repos) > 0 {
			note(fmt.Sprintf("repository %s of an earlier file is no longer listed: the last list applies", text.Quote(r.ID)))
		}
	}
}
