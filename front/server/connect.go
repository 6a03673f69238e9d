package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"corral/front/supervisor"
	"corral/internal/config"
	"corral/internal/log"
	"corral/internal/text"
	"corral/isolate/client/embed"
)

// backend connects to a supervisor or starts one, drops root, reads the configuration and makes a back-end. It leaves
// nothing on the host but the process of an embedded supervisor.
func (s *serving) backend() (*Backend, error) {
	log := log.Stderr(s.level, false)
	sup, c, err := s.connect()
	if err != nil {
		return nil, err
	}
	var b *Backend
	if err = s.checkRepos(c, sup, log); err == nil {
		b, err = newBackend(backendOptions{Config: c, Log: log, Supervisor: sup, Single: s.alone, Shares: s.shares(c)})
	}
	if err != nil {
		sup.Close()
		return nil, err
	}
	return b, nil
}

// connect returns a connection to the supervisor, and the configuration. Root is dropped when it returns.
func (s *serving) connect() (*supervisor.Connection, config.Config, error) {
	if embed.Root() && s.supervisor == "" {
		return s.embedded()
	}
	c, files, err := LoadConfig(s.sources()) // drops root
	if err == nil {
		err = s.only(&c)
	}
	if err != nil {
		return nil, c, err
	}
	sup, err := supervisor.Connect(s.supervisor)
	if err != nil {
		return nil, c, err
	}
	sup.Restrict(c, files, log.Stderr(s.level, false))
	return sup, c, nil
}

// embedded starts a supervisor for the directories that root named. If the command line names none, they are those of
// configuration files that only root can have written, which root itself reads; otherwise the files are read after root
// is dropped.
func (s *serving) embedded() (sup *supervisor.Connection, c config.Config, err error) {
	sources := s.sources()
	for n := range sources {
		sources[n].Options.Trusted = sources[n].Options.Trusted || s.repos == nil
	}
	files, err := config.OpenFront(sources...)
	if err != nil {
		return nil, c, errors.Join(err, embed.Drop())
	}
	defer func() { _ = files.Close() }()
	load := func() error {
		if c, err = files.Load(); err != nil {
			return err
		}
		return s.only(&c)
	}
	repos := s.repos
	if repos == nil {
		if err := load(); err != nil {
			return nil, c, errors.Join(err, embed.Drop())
		}
		repos = c.Repos
	}
	paths := RepoPaths(repos)
	shown := findToolchains(log.Stderr(s.level, false), s.whose, paths)
	if sup, err = supervisor.Start(embed.Options{
		Repos: paths, Toolchains: shown, Owners: supervisor.Owners(repos), Account: s.account,
	}); err != nil {
		return nil, c, errors.Join(err, embed.Drop())
	}
	if s.repos != nil {
		if err := load(); err != nil {
			sup.Close()
			return nil, c, err
		}
	}
	sup.Restrict(c, files.Files(), log.Stderr(s.level, false))
	c.Toolchains = append(c.Toolchains, shown...)
	return sup, c, nil
}

// checkTime is the timeout for the supervisor to say whether it serves the repositories.
const checkTime = 10 * time.Second

// checkRepos returns an error if the supervisor does not serve a repository that the command line names, or none of
// those in the configuration; otherwise it logs those that are not served. Without this check every call would be
// refused, and only the agent would see why.
func (s *serving) checkRepos(c config.Config, sup *supervisor.Connection, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	var first error
	served := 0
	for _, r := range c.Repos {
		err := sup.CheckRepo(ctx, r.Path, c.For(r).Workspace)
		switch {
		case err == nil:
			served++
			continue
		case ctx.Err() != nil: // busy, which is not a refusal
			log.Warn("the supervisor did not answer in time whether it serves the repositories", "after", checkTime)
			return nil
		}
		err = fmt.Errorf("repository %s cannot be served: %w", text.Quote(r.Path), err)
		if s.repos != nil {
			return err
		}
		log.Warn("a repository of the configuration is not served", "repo", r.ID, "error", err)
		first = cmp.Or(first, err)
	}
	if served == 0 {
		return first
	}
	return nil
}
