package server

import (
	"path/filepath"
	"slices"

	"corral/internal/config"
	"corral/internal/directory"
	"corral/internal/version"
	"corral/policy/network"
	"corral/rpc"
)

// newExecServer returns the server of corral exec-server. started is the directory in which the program was started.
func newExecServer(b *Backend, started string) (*rpc.Server, error) {
	c := b.Config
	a, err := execAccess(b, c)
	if err != nil {
		return nil, err
	}
	return &rpc.Server{
		Version: version.Version, Log: b.Log, Tracer: b.Tracer(), Budget: c.ExecServer.OutputBudget, Dir: execDirectory(c.Repos, started),
		Ended: b.Sessions.End, Access: a,
	}, nil
}

// execAccess returns what clients may use by a configuration.
func execAccess(b *Backend, c config.Config) (a rpc.Access, err error) {
	c.Runtime.MaxDuration = 0 // bounds one call of a tool, which a client waits for; a command may be an interactive shell
	a.Repos = execRepos(c.Repos)
	for n, r := range c.Repos {
		rules := c.Rules(r)
		if rules == nil {
			continue
		}
		set, err := network.Compile(rules)
		if err != nil {
			return a, err
		}
		a.Repos[n].Allows = func(host string) bool { _, err := set.Narrow(host); return err == nil }
	}
	if a.Engine, err = b.Engine(c); err != nil || c.ExecServer.FullAccess == "" {
		return a, err
	}
	// A client that declares an external sandbox gets the same: corral is that sandbox.
	full, err := b.Engine(withProfile(c, c.ExecServer.FullAccess))
	a.FullAccess, a.External = full, full
	return a, err
}

func execRepos(list []config.Repo) []rpc.Repo {
	var repos []rpc.Repo
	for _, r := range list {
		repos = append(repos, rpc.Repo{ID: r.ID, Path: r.Path})
	}
	return repos
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
// lies in a repository or there is none, else the first repository.
func execDirectory(repos []config.Repo, started string) string {
	for _, r := range repos {
		if directory.Within(started, r.Path) {
			return filepath.Clean(started)
		}
	}
	if len(repos) == 0 {
		return started
	}
	return repos[0].Path
}
