package main

import (
	"path/filepath"
	"slices"
	"strings"

	"corral/front/settings"
	"corral/internal/config"
	"corral/internal/version"
	"corral/job"
	"corral/rpc"
)

// buildExec makes the server of corral exec-server. started is the directory in which the program was started.
func (b *backend) buildExec(started string) error {
	c := b.config
	c.Runtime.MaxDuration = 0 // bounds one call of a tool, which a client waits for; a command may be an interactive shell
	b.exec = &rpc.Server{
		Version: version.Version, Log: b.log, Tracer: b.tracing(), Budget: c.ExecServer.OutputBudget, Dir: execDirectory(c.Repos, started),
		Ended: b.sessions.End,
	}
	for _, r := range c.Repos {
		b.exec.Repos = append(b.exec.Repos, rpc.Repo{ID: r.ID, Path: r.Path})
	}
	var err error
	if b.exec.Engine, err = b.execEngine(c); err != nil {
		return err
	}
	if c.ExecServer.FullAccess == "" {
		return nil
	}
	// A client that declares an external sandbox gets the same: corral is that sandbox.
	b.exec.FullAccess, err = b.execEngine(withProfile(c, c.ExecServer.FullAccess))
	b.exec.External = b.exec.FullAccess
	return err
}

// execEngine runs commands by the rules of c. It has no queue: a client talks to a command that it starts, and does not
// wait for other commands to end. The supervisor bounds the number of jobs.
func (b *backend) execEngine(c config.Config) (rpc.Engine, error) {
	rules, err := settings.NewPolicy(c)
	if err != nil {
		return nil, err
	}
	return &job.Engine{Policy: rules, Runner: b.supervisor, Auditor: b.supervisor, Sessions: b.sessions}, nil
}

// withProfile returns c with the profile for every repository, in place of the repository's own profile and workspace
// mode. Ceilings are kept.
func withProfile(c config.Config, profile string) config.Config {
	c.Repos = slices.Clone(c.Repos)
	for i := range c.Repos {
		c.Repos[i].Profile, c.Repos[i].Workspace = profile, nil
	}
	return c
}

// execDirectory returns where commands run that name no directory: the directory in which the server was started, if it
// lies in a repository, else the first repository.
func execDirectory(repos []config.Repo, started string) string {
	for _, r := range repos {
		if started == r.Path || strings.HasPrefix(started, r.Path+"/") {
			return filepath.Clean(started)
		}
	}
	return repos[0].Path
}
