package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"corral/internal/config"
	"corral/internal/directory"
	"corral/internal/text"
	"corral/isolate/client/embed"
)

// A serving is what the command line of a server says, and what comes of it.
type serving struct {
	repos                     []config.Repo // that the command line names
	account                   string        // whose directories they are, for root without sudo
	whose                     directory.Account
	config, supervisor, names string
	level                     slog.Level
	tools                     []string // that are served, by their names without dots; nil is all
	// alone says that there is one client, who may use every repository: it is told of them. Others learn of theirs by an
	// error.
	alone bool
	// tokens says that clients need one.
	tokens bool
}

// parseServing reads the options that the servers share.
func parseServing(f *flag.FlagSet, args []string, help string) (s *serving, ended bool, code int, err error) {
	s = &serving{level: slog.LevelInfo}
	var dirs []string
	f.Func("repo", "", func(dir string) error {
		dirs = append(dirs, dir)
		return nil
	})
	f.StringVar(&s.account, "account", "", "")
	f.StringVar(&s.config, "config", "", "")
	f.StringVar(&s.supervisor, "supervisor", "", "")
	s.names = "plain"
	if f.Name() != execServer { // which has no tools
		f.StringVar(&s.names, "tool-names", s.names, "")
		f.Func("tools", "", func(list string) error {
			s.tools = strings.Split(list, ",")
			return nil
		})
	}
	f.TextVar(&s.level, "log-level", slog.LevelInfo, "")
	if ended, code, err = parseFlags(f, args, help); ended {
		return nil, true, code, err
	}
	if err = s.check(f); err == nil {
		err = s.open(dirs)
	}
	if err != nil {
		return nil, true, failure, errors.Join(err, dropRoot())
	}
	return s, false, 0, nil
}

// open makes repositories of the directories that the command line names. Root opens them with the rights of whose they are.
func (s *serving) open(dirs []string) error {
	s.whose = self()
	if os.Geteuid() == 0 {
		var err error
		if s.whose, err = embed.Account(s.account); err != nil {
			return err
		}
	} else if s.account != "" {
		return errors.New("--account is for root\nhint: a supervisor that runs knows who asks")
	}
	for _, dir := range dirs {
		repo, err := (&repoOptions{}).repo(s.whose, dir)
		if err != nil {
			return err
		}
		s.repos = append(s.repos, repo)
	}
	return nil
}

func (s *serving) check(f *flag.FlagSet) error {
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q\nhint: corral %s --help", f.Arg(0), f.Name())
	}
	if s.names != "plain" && s.names != "dotted" {
		return fmt.Errorf("--tool-names %q: plain or dotted is wanted", s.names)
	}
	return nil
}

// errNoTokens is a server for those who have a token, and nobody has.
var errNoTokens = errors.New("nobody has a token, and without one nobody is served\nhint: corral config token NAME makes one")

// only makes c serve the directories of the command line and no others, if there are any. What c says of one of them
// holds; another is served under its base name. Without a directory, or anybody to serve, it is an error.
func (s *serving) only(c *config.Config) error {
	if s.tokens && len(c.Principals) == 0 {
		return errNoTokens
	}
	if s.repos == nil {
		if len(c.Repos) == 0 {
			return errors.New("no repository to serve\nhint: name one with --repo DIR, or add it with corral repo add DIR")
		}
		return nil
	}
	var list []config.Repo
	for _, repo := range s.repos {
		if n := slices.IndexFunc(c.Repos, func(r config.Repo) bool { return r.Path == repo.Path }); n >= 0 {
			repo = c.Repos[n]
		}
		for _, other := range list {
			if other.ID == repo.ID && other.Path != repo.Path {
				return fmt.Errorf("two repositories have the id %q: %s and %s\nhint: list one of them with an id of its own: corral repo add DIR --id ID",
					repo.ID, text.Quote(other.Path), text.Quote(repo.Path))
			}
		}
		if !slices.ContainsFunc(list, func(r config.Repo) bool { return r.Path == repo.Path }) {
			list = append(list, repo)
		}
	}
	c.Repos = list
	return nil
}

// checkTime is how long the supervisor may take to say whether it serves the repositories.
const checkTime = 10 * time.Second

// checkRepos is an error if the supervisor does not serve a repository that the command line names, or none of those of the
// configuration; one of these that is not served is logged. Without it, every call would be refused, and say so to an agent
// alone.
func (s *serving) checkRepos(b *backend) error {
	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	var first error
	served := 0
	for _, r := range b.config.Repos {
		err := b.supervisor.checkRepo(ctx, r.Path)
		switch {
		case err == nil:
			served++
			continue
		case ctx.Err() != nil: // a supervisor that is busy is not one that refuses
			b.log.Warn("the supervisor has not said in time whether it serves the repositories", "after", checkTime)
			return nil
		}
		err = fmt.Errorf("repository %s cannot be served: %w", text.Quote(r.Path), err)
		if s.repos != nil {
			return err
		}
		b.log.Warn("a repository of the configuration is not served", "repo", r.ID, "error", err)
		first = cmp.Or(first, err)
	}
	if served == 0 {
		return first
	}
	return nil
}
