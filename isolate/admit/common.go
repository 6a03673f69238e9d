package admit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
	"corral/job"
)

// A git worktree keeps its branches and objects in a git directory elsewhere, the common directory, and a submodule its own
// in that of the repository around it. A job there has it mounted too, at its own path. Front-ends find it and make sure that
// it knows the worktree; whether it is served is decided here, by the rules for repositories.

// Common returns the git directory at path, which has the repository as a worktree. A client that is not embedded
// passes its descriptor too. The result is nil if there is none or it is not served to the peer: the job runs without
// it, and git in the job reports that.
func (s *Served) Common(peer host.Peer, path string, dir *os.File, r *Repo) *Repo {
	if path == "" {
		return nil
	}
	c, err := s.servesCommon(peer, path, dir)
	return s.fits(peer, c, r, err)
}

// CommonAgain returns the git directory that the repository of a kept layer was a worktree of when it was kept, likewise.
func (s *Served) CommonAgain(peer host.Peer, path string, is host.Inode, r *Repo) *Repo {
	c, err := s.ServesAgain(peer, path, is, r.ReadOnly)
	return s.fits(peer, c, r, err)
}

// fits returns the git directory c if jobs of the repository may have it, and err is nil.
func (s *Served) fits(peer host.Peer, c, r *Repo, err error) *Repo {
	if err == nil && !s.sharesOwner(peer, c, r) {
		c.Close()
		err = fmt.Errorf("%q belongs to user %d, but %q belongs to user %d", c.Path, c.UID, r.Path, r.UID)
	}
	if err != nil {
		s.Log.Info("git directory of a worktree not served", "uid", peer.UID, "repo", r.Path, "error", err)
		return nil
	}
	if strings.HasPrefix(c.Path+"/", r.Path+"/") { // it is mounted as part of the repository
		c.Close()
		return nil
	}
	return c
}

// sharesOwner reports whether a job of the repository may be mapped to the owner of the common directory: both must
// have one owner, unless the operator serves exactly that directory. Only a job in a repository of root is mapped to
// root.
func (s *Served) sharesOwner(peer host.Peer, common, r *Repo) bool {
	return common.UID == r.UID || common.UID != 0 && s.ServesTo(peer, common.Path)
}

// servesCommon decides whether a client may have jobs in the git directory it named, and pins it. A directory that
// the operator serves as a repository is not accepted unless it is named like a git directory, because sensitive
// paths in it are protected as in a git directory. A directory without such a name is accepted only if root named it, or as that of
// a submodule in a directory that has one.
func (s *Served) servesCommon(peer host.Peer, path string, dir *os.File) (*Repo, error) {
	c, err := s.pinCommon(peer, path, dir)
	if err != nil || strings.HasSuffix(c.Path, ".git") || ofSubmodule(c.Path) || s.named(peer, c.Path) && s.pinned[c.Path] == (host.Inode{}) {
		return c, err
	}
	c.Close()
	return nil, &job.Refusal{Step: "repo", Message: fmt.Sprintf("%q is not named .git or NAME.git, as a git directory must be", c.Path)}
}

// ofSubmodule reports whether a path is that of a submodule's git directory by its name: in .git/modules, or in
// .git/worktrees/NAME/modules.
func ofSubmodule(path string) bool {
	_, in, _ := strings.Cut(path, ".git/")
	if rest, ok := strings.CutPrefix(in, "worktrees/"); ok {
		_, in, _ = strings.Cut(rest, "/")
	}
	return strings.HasPrefix(in, "modules/")
}

// named reports whether root named the git directory at path on the command line, for worktrees only.
func (s *Served) named(peer host.Peer, path string) bool {
	return peer.Embedded && s.commons[path] != (host.Inode{})
}

// pinCommon pins the directory. In addition to what serves accepts, it accepts the .git of a served directory and
// what root named.
func (s *Served) pinCommon(peer host.Peer, path string, dir *os.File) (*Repo, error) {
	top := filepath.Dir(path)
	switch {
	case s.named(peer, path):
		if err := s.checkPath(path); err != nil {
			return nil, err
		}
		return s.pin(peer, path, s.commons[path])
	case filepath.Base(path) != ".git" || s.ServesTo(peer, path) || !s.ServesTo(peer, top):
		return s.Serves(peer, path, dir)
	}
	above, err := s.servesPath(peer, top)
	if err != nil {
		return nil, err
	}
	above.Close()
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
func (s *Served) pinCommons() {
	s.commons = map[string]host.Inode{}
	for _, path := range s.Commons {
		dir, err := s.openDir(path)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(dir.Fd()), &st); err == nil {
			s.commons[path] = host.InodeOf(&st)
		}
		dir.Close()
	}
}

// CommonReadOnly reports whether the operator made the common directory at path readonly or overlay.
func (s *Served) CommonReadOnly(path string) bool {
	return slices.ContainsFunc(s.ofCommon(path), func(r Entry) bool { return r.ReadOnly || r.Overlay })
}

// ofCommon returns the operator's entries for the common directory at path, or for the directory whose .git it is.
func (s *Served) ofCommon(path string) []Entry {
	var list []Entry
	for _, r := range s.Entries {
		if r.Path == path || filepath.Join(r.Path, ".git") == path {
			list = append(list, r)
		}
	}
	return list
}
