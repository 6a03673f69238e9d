package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"corral/internal/config"
	"corral/internal/directory"
	"corral/internal/text"
	"corral/isolate/client"
)

// RepoIDs returns the ids of repositories.
func RepoIDs(list []config.Repo) (ids []string) {
	for _, r := range list {
		ids = append(ids, r.ID)
	}
	return ids
}

// RepoPaths returns the paths of repositories.
func RepoPaths(list []config.Repo) (paths []string) {
	for _, r := range list {
		paths = append(paths, r.Path)
	}
	return paths
}

// PathsByID returns the paths of all repositories by id.
func PathsByID(c config.Config) map[string]string {
	paths := map[string]string{}
	for _, r := range c.Repos {
		paths[r.ID] = r.Path
	}
	return paths
}

// Timeouts returns execute.Execute.Timeouts: Config.Timeout by the id of a repository.
func Timeouts(c config.Config) func(id string) (usual, longest time.Duration) {
	return func(id string) (usual, longest time.Duration) {
		r, _ := c.Repo(id)
		return c.Timeout(r)
	}
}

// Self returns the account of this process.
func Self() directory.Account { return directory.Account{UID: uint32(os.Geteuid())} }

// Repository returns the directory called name as a repository, with its base name as id. The directory is opened with the
// rights of the account. The path contains no symbolic links, which could be changed to point elsewhere, and the
// repository must always belong to the user that owns it now.
func Repository(whose directory.Account, name string) (config.Repo, error) {
	dir, err := openRepository(whose, name)
	if err != nil {
		return config.Repo{}, err
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return config.Repo{}, fmt.Errorf("fstat %s: %w", dir.Name(), err)
	}
	return config.Repo{ID: filepath.Base(dir.Name()), Path: dir.Name(), Owner: &st.Uid}, nil
}

// openRepository opens the directory of a repository with the rights of the account.
func openRepository(whose directory.Account, name string) (*os.File, error) {
	path, err := directory.Absolute(name)
	if err != nil {
		return nil, err
	}
	if !utf8.ValidString(path) {
		return nil, fmt.Errorf("%q is not UTF-8: a configuration cannot contain it", path)
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

// AddRepository adds the directory that a command line names to the repositories of a configuration, unless it has it.
func AddRepository(c config.Config, dir string) (config.Config, error) {
	r, err := Repository(Self(), dir)
	if err != nil {
		return config.Config{}, err
	}
	for _, other := range c.Repos {
		switch {
		case other.Path == r.Path:
			return c, nil
		case other.ID == r.ID:
			return config.Config{}, fmt.Errorf("%s: the configuration already has a repository %q: %s\nhint: choose another id: corral repo add %s --id ID",
				text.Quote(r.Path), r.ID, text.Quote(other.Path), text.Quote(filepath.Clean(dir)))
		}
	}
	c.Repos = append(slices.Clone(c.Repos), r)
	return c, nil
}
