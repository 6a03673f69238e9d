// Package server has the commands that serve clients: corral mcp, corral serve and corral exec-server. It loads the configuration of a
// front-end, and makes repositories, principals and a policy from it. A Backend is what the tools and commands of clients run jobs with.
package server

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"corral/front/cli"
	"corral/front/telemetry"
	"corral/internal/config"
	"corral/internal/directory"
	"corral/internal/text"
	"corral/isolate/client/embed"
)

// A serving is the command line of a server, and what follows from it.
type serving struct {
	repos                     []config.Repo // named on the command line
	account                   string        // --account: owner of the directories, for root without sudo
	whose                     directory.Account
	config, supervisor, names string
	level                     slog.Level
	tools                     []string // names of the served tools, without dots; nil is all
	structured                bool     // replies of text tools have structuredContent
	// alone says that there is one client, which may use every repository and gets their ids in the instructions.
	// Others learn the ids of their repositories from errors.
	alone bool
	// tokens says that clients need a token.
	tokens bool
	// finds says that a server without repositories serves those that its clients work in.
	finds bool
	// from are the configuration files, see sources.
	from []config.Source
	// metrics counts the calls of a server over HTTP. newServer sets it, unless alone.
	metrics *telemetry.Metrics
	// principals returns those of now; nil before the server is made. No request comes before that.
	principals func() config.Principals
	before     func() // called before each message of standard input; nil is not called
}

// sources returns the configuration files of the server. Its first call, before root is dropped, determines them and how far
// they are trusted for all later readings.
func (s *serving) sources() []config.Source {
	if s.from == nil {
		s.from = ConfigSources(s.config)
	}
	return s.from
}

// parseServing parses the options that all servers have, and those that the caller has added to f.
// tools says that the server has tools, which can be selected.
func parseServing(f *flag.FlagSet, tools bool, args []string, help string) (s *serving, err error) {
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
	if tools {
		f.StringVar(&s.names, "tool-names", s.names, "")
		f.BoolVar(&s.structured, "structured", false, "")
		f.Func("tools", "", func(list string) error {
			s.tools = strings.Split(list, ",")
			return nil
		})
	}
	f.Func("log-level", "", func(level string) error {
		if !slices.Contains([]string{"debug", "info", "warn", "error"}, strings.ToLower(level)) {
			return errors.New("must be debug, info, warn or error")
		}
		return s.level.UnmarshalText([]byte(level))
	})
	if err = cli.ParseFlags(f, args, help); err == nil {
		err = s.check(f)
	}
	if err == nil {
		err = s.open(dirs)
	}
	return s, err
}

// open resolves the directories that the command line names. Root opens them with the rights of the account.
func (s *serving) open(dirs []string) error {
	s.whose = Self()
	if embed.Root() {
		var err error
		if s.whose, err = embed.Account(s.account); err != nil {
			return err
		}
	} else if s.account != "" {
		return errors.New("--account is for root only\nhint: a running supervisor knows its client's user")
	}
	for _, dir := range dirs {
		repo, err := Repository(s.whose, dir)
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
		return fmt.Errorf("--tool-names %q: must be plain or dotted", s.names)
	}
	return nil
}

// errNoTokens is returned if clients need a token and the configuration has none.
var errNoTokens = errors.New("the configuration has no principal, so no client could connect\nhint: corral config token NAME makes a token")

// errNoRepos is returned if neither the configuration nor the command line has a repository.
var errNoRepos = errors.New("no repository to serve\nhint: use --repo DIR, or add a repository with corral repo add DIR")

// only restricts c to the directories of the command line, if there are any. A directory that c lists has its settings;
// another is served with its base name as id. It is an error if there is no repository to serve, or no principal
// although clients need one.
func (s *serving) only(c *config.Config) error {
	if s.tokens && len(c.Principals) == 0 {
		return errNoTokens
	}
	if s.repos == nil {
		if len(c.Repos) == 0 && !s.finds {
			return errNoRepos
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
				return fmt.Errorf("two repositories have the id %q: %s and %s\nhint: give one of them another id: corral repo add DIR --id ID",
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
