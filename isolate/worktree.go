package isolate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"corral/isolate/inside"
	"corral/job"
)

// A worktree of git has its branches and objects in a git directory elsewhere, the common one. A job in a worktree has it
// mounted too, at its own path. Front-ends find it, and see to it that it knows the worktree; here it is served or not, by
// the rules for repositories.

// common returns the git directory at path, of which the repository is a worktree; a client that is no embedding one passes a
// descriptor too. nil is that there is none, or none that
// is served to the peer: the job runs without, and git in it says so.
func (s *Supervisor) common(peer Peer, path string, dir *os.File, r *repo) *repo {
	if path == "" {
		return nil
	}
	c, err := s.servesCommon(peer, path, dir)
	if err == nil && !s.config.sharesOwner(peer, c, r) {
		c.close()
		err = fmt.Errorf("%q is user %d's, and %q is user %d's", c.path, c.uid, r.path, r.uid)
	}
	if err != nil {
		s.config.Log.Info("git directory of a worktree not served", "uid", peer.UID, "repo", r.path, "error", err)
		return nil
	}
	if strings.HasPrefix(c.path+"/", r.path+"/") { // it is mounted with the repository
		c.close()
		return nil
	}
	return c
}

// sharesOwner says whether a job of the repository may be the owner of the common directory: one owner is mapped for both,
// unless the operator serves that very directory. Only a job of root's is root.
func (c *Config) sharesOwner(peer Peer, common, r *repo) bool {
	return common.uid == r.uid || common.uid != 0 && c.servesTo(peer, common.path)
}

// servesCommon decides whether a client may have jobs in the git directory it named, and pins it. A directory that the
// operator serves as a repository is no git directory, whatever a client says, unless it is called one: protection goes
// through it as through one. Without a name of git's it is one only if root said so.
func (s *Supervisor) servesCommon(peer Peer, path string, dir *os.File) (*repo, error) {
	c, err := s.pinCommon(peer, path, dir)
	if err != nil || strings.HasSuffix(c.path, ".git") || s.named(peer, c.path) && s.config.pinned[c.path] == (inode{}) {
		return c, err
	}
	c.close()
	return nil, &job.Refusal{Step: "repo", Message: fmt.Sprintf("%q is not called .git or NAME.git, as a git directory is", c.path)}
}

// named says whether root named the git directory at path on the command line, for worktrees alone.
func (s *Supervisor) named(peer Peer, path string) bool {
	return peer.Embedded && s.config.commons[path] != (inode{})
}

// pinCommon pins what is served: besides what serves does, the .git of a directory is served with that, and what root named.
func (s *Supervisor) pinCommon(peer Peer, path string, dir *os.File) (*repo, error) {
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
		return s.pin(peer, path, inode{})
	}
	id, err := s.probes.identify(peer.payer(), dir)
	if err != nil {
		return nil, refuseRepo(path, err)
	}
	c, err := s.pin(peer, path, id.inode)
	if err != nil {
		return nil, err
	}
	return s.asPassed(peer, c, dir)
}

// pinCommons notes which directories root named for worktrees. What is none any more is no reason not to start.
func (c *Config) pinCommons() {
	c.commons = map[string]inode{}
	for _, path := range c.Commons {
		dir, err := c.openDir(path)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(dir.Fd()), &st); err == nil {
			c.commons[path] = inode{st.Dev, st.Ino}
		}
		dir.Close()
	}
}

// ofCommon are the entries of the operator's about the common directory at path, or about the directory it is the .git of.
func (c *Config) ofCommon(path string) []Repo {
	var list []Repo
	for _, r := range c.Repos {
		if r.Path == path || filepath.Join(r.Path, ".git") == path {
			list = append(list, r)
		}
	}
	return list
}

// addCommon has the plan mount the common directory, if there is one, and returns its mount. It is read-only if the
// repository is, or if the operator says so of either, or wants a layer; and as a whole for a job that leaves git directories alone.
func (sl *slot) addCommon(plan *inside.Plan, readOnly bool) ([]*os.File, error) {
	c := sl.jail.repo.common
	if c == nil {
		return nil, nil
	}
	for _, r := range sl.jail.s.config.ofCommon(c.path) {
		readOnly = readOnly || r.ReadOnly || r.Overlay
	}
	ids := sl.idmap
	if r := sl.jail.repo; c.uid != r.uid || c.gid != r.gid || c.group != r.group {
		var err error
		if ids, err = sl.jail.s.userns.repoMap(c, sl.hostUID(), sl.jail.base); err != nil {
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

// commonReadOnly says whether a job is not to write to the common directory at all.
func (r *run) commonReadOnly(q *Request) bool {
	return !q.writes() || r.protect == job.ProtectAll
}
