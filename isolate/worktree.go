package isolate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/job"
)

// A git worktree keeps its branches and objects in a git directory elsewhere, the common directory. A job in a
// worktree has that mounted too, at its own path. Front-ends find it and make sure that it knows the worktree;
// whether it is served is decided here, by the rules for repositories.

// common returns the git directory at path, of which the repository is a worktree. A client that is not embedded
// passes its descriptor too. The result is nil if there is none or it is not served to the peer: the job runs without
// it, and git in the job reports that.
func (s *Supervisor) common(peer host.Peer, path string, dir *os.File, r *repo) *repo {
	if path == "" {
		return nil
	}
	c, err := s.servesCommon(peer, path, dir)
	if err == nil && !s.config.sharesOwner(peer, c, r) {
		c.close()
		err = fmt.Errorf("%q belongs to user %d, but %q belongs to user %d", c.path, c.UID, r.path, r.UID)
	}
	if err != nil {
		s.config.Log.Info("git directory of a worktree not served", "uid", peer.UID, "repo", r.path, "error", err)
		return nil
	}
	if strings.HasPrefix(c.path+"/", r.path+"/") { // it is mounted as part of the repository
		c.close()
		return nil
	}
	return c
}

// sharesOwner reports whether a job of the repository may be mapped to the owner of the common directory: both must
// have one owner, unless the operator serves exactly that directory. Only a job in a repository of root is mapped to
// root.
func (c *Config) sharesOwner(peer host.Peer, common, r *repo) bool {
	return common.UID == r.UID || common.UID != 0 && c.servesTo(peer, common.path)
}

// servesCommon decides whether a client may have jobs in the git directory it named, and pins it. A directory that
// the operator serves as a repository is not accepted unless it is named like a git directory, because sensitive
// paths in it are protected as in a git directory. A directory without such a name is accepted only if root named it.
func (s *Supervisor) servesCommon(peer host.Peer, path string, dir *os.File) (*repo, error) {
	c, err := s.pinCommon(peer, path, dir)
	if err != nil || strings.HasSuffix(c.path, ".git") || s.named(peer, c.path) && s.config.pinned[c.path] == (host.Inode{}) {
		return c, err
	}
	c.close()
	return nil, &job.Refusal{Step: "repo", Message: fmt.Sprintf("%q is not named .git or NAME.git, as a git directory must be", c.path)}
}

// named reports whether root named the git directory at path on the command line, for worktrees only.
func (s *Supervisor) named(peer host.Peer, path string) bool {
	return peer.Embedded && s.config.commons[path] != (host.Inode{})
}

// pinCommon pins the directory. In addition to what serves accepts, it accepts the .git of a served directory and
// what root named.
func (s *Supervisor) pinCommon(peer host.Peer, path string, dir *os.File) (*repo, error) {
	top := filepath.Dir(path)
	switch {
	case s.named(peer, path):
		if err := s.checkPath(path); err != nil {
			return nil, err
		}
		return s.pin(peer, path, s.config.commons[path])
	case filepath.Base(path) != ".git" || s.config.servesTo(peer, path) || !s.config.servesTo(peer, top):
		return s.serves(peer, path, dir)
	}
	above, err := s.servesPath(peer, top)
	if err != nil {
		return nil, err
	}
	above.close()
	if dir == nil {
		return s.pin(peer, path, host.Inode{})
	}
	id, err := s.probes.Identify(peer.Payer(), dir)
	if err != nil {
		return nil, refuseRepo(path, err)
	}
	c, err := s.pin(peer, path, id.Inode)
	if err != nil {
		return nil, err
	}
	return s.asPassed(peer, c, dir)
}

// pinCommons records the directories that root named for worktrees. One that does not exist any more does not keep
// the supervisor from starting.
func (c *Config) pinCommons() {
	c.commons = map[string]host.Inode{}
	for _, path := range c.Commons {
		dir, err := c.openDir(path)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(dir.Fd()), &st); err == nil {
			c.commons[path] = host.InodeOf(&st)
		}
		dir.Close()
	}
}

// ofCommon returns the operator's entries for the common directory at path, or for the directory whose .git it is.
func (c *Config) ofCommon(path string) []Repo {
	var list []Repo
	for _, r := range c.Repos {
		if r.Path == path || filepath.Join(r.Path, ".git") == path {
			list = append(list, r)
		}
	}
	return list
}

// addCommon adds the common directory, if there is one, to the plan, and returns its mount. It is read-only if the
// repository is, if the operator made either readonly or overlay, or if the job must not change git directories.
func (sl *slot) addCommon(plan *inside.Plan, readOnly bool) ([]*os.File, error) {
	c := sl.jail.repo.common
	if c == nil {
		return nil, nil
	}
	for _, r := range sl.jail.s.config.ofCommon(c.path) {
		readOnly = readOnly || r.ReadOnly || r.Overlay
	}
	ids := sl.idmap
	if r := sl.jail.repo; c.Owner != r.Owner {
		var err error
		if ids, err = sl.jail.s.userns.RepoMap(c.Owner, sl.hostUID(), sl.jail.base); err != nil {
			return nil, err
		}
		defer ids.Close()
	}
	mount, err := c.clone(ids, readOnly)
	if err != nil {
		return nil, fmt.Errorf("the git directory of the worktree: %w", err)
	}
	plan.Common = c.path
	return []*os.File{mount}, nil
}

// commonReadOnly reports whether a job must not write to the common directory at all.
func (r *run) commonReadOnly(q *Request) bool {
	return !q.writes() || r.protect == job.ProtectAll
}
