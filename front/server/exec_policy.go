package server

import (
	"path/filepath"
	"slices"
	"strings"

	"corral/front"
	"corral/internal/config"
	"corral/internal/version"
	"corral/rpc"
)

// newExecServer returns the server of corral exec-server. started is the directory in which the program was started.
func newExecServer(b *front.Backend, started string) (*rpc.Server, error) {
	c := b.Config
	c.Runtime.MaxDuration = 0 // bounds one call of a tool, which a client waits for; a command may be an interactive shell
	s := &rpc.Server{
		Version: version.Version, Log: b.Log, Tracer: b.Tracer(), Budget: c.ExecServer.OutputBudget, Dir: execDirectory(c.Repos, started),
		Ended: b.Sessions.End,
	}
	for _, r := range c.Repos {
		s.Repos = append(s.Repos, rpc.Repo{ID: r.ID, Path: r.Path})
	}
	engine, err := b.Engine(c)
	if err != nil {
		return nil, err
	}
	s.Engine = engine
	if c.ExecServer.FullAccess == "" {
		return s, nil
	}
	// A client that declares an external sandbox gets the same: corral is that sandbox.
	full, err := b.Engine(withProfile(c, c.ExecServer.FullAccess))
	if err != nil {
		return nil, err
	}
	s.FullAccess, s.External = full, full
	return s, nil
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
