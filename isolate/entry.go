package isolate

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/job"
)

// An entry of the configuration can be wrong without any mistake of the operator's: who owns the directory, or one above
// it, replaces it by a link, or by somebody else's directory. Such an entry is not served, and no reason not to start:
// otherwise any of these users could keep the supervisor from starting. It is logged with the reason, and a client that
// the entry is for is told it.

// pinRepos opens the directory of each entry, notes which one it is, and marks the entries that cannot be served.
func (c *Config) pinRepos() {
	c.pinned, c.bad = map[string]inode{}, map[string]error{}
	for i := range c.Repos {
		r := &c.Repos[i]
		path, err := directory.Absolute(r.Path)
		if err != nil {
			c.reject(r.Path, err)
			continue
		}
		r.Path = path
		if err := c.pinRepo(r, inode{}); err != nil {
			c.reject(r.Path, err)
		}
	}
	c.rejectOverlaps()
}

// pinRepo opens the directory of an entry, and notes which one it is. It must be the one with inode want, unless that is
// zero.
func (c *Config) pinRepo(r *Repo, want inode) error {
	dir, err := c.openDir(r.Path)
	if err != nil {
		return refuseRepo(r.Path, err)
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return refuseRepo(r.Path, err)
	}
	is := inode{st.Dev, st.Ino}
	if want != (inode{}) && is != want {
		return replaced(r.Path)
	}
	if err := r.checkOwner(st.Uid); err != nil {
		return err
	}
	c.pinned[r.Path] = is
	return nil
}

// openDir opens a directory that root named: with the rights of the account that an embedded supervisor was started for,
// or else with root's.
func (c *Config) openDir(path string) (*os.File, error) {
	return directory.OpenFor(c.Account, path)
}

// checkOwner compares the owner of an entry's directory with the one that the operator wrote down.
func (r *Repo) checkOwner(uid uint32) error {
	if r.Owner == nil || *r.Owner == uid {
		return nil
	}
	return &job.Refusal{
		Step:    "repo",
		Message: fmt.Sprintf("%q belongs to user %d, and its entry in the configuration says user %d", r.Path, uid, *r.Owner),
		Hint:    "find out who replaced it; if that is as it should be, change `owner` of the entry and restart the supervisor",
	}
}

// rejectOverlaps marks entries of which one lies in the other: a job in the outer one could replace the inner one, and
// would not be held to what the operator said of it. Two entries for one path are one directory with both bounds.
func (c *Config) rejectOverlaps() {
	for i, a := range c.Repos {
		for _, b := range c.Repos[i+1:] {
			same := c.pinned[a.Path] == c.pinned[b.Path] && c.pinned[a.Path] != (inode{})
			if a.Path == b.Path || !same && !directory.Overlap(a.Path, b.Path) {
				continue
			}
			for _, pair := range [][2]string{{a.Path, b.Path}, {b.Path, a.Path}} {
				c.reject(pair[0], &job.Refusal{
					Step:    "repo",
					Message: fmt.Sprintf("%q overlaps %q, which is served too: jobs in one could replace the other", pair[0], pair[1]),
					Hint:    "serve only one of them, and restart the supervisor",
				})
			}
		}
	}
}

// reject marks the entries for a path. The first reason is kept.
func (c *Config) reject(path string, why error) {
	if c.bad[path] == nil {
		c.bad[path] = why
	}
	delete(c.pinned, path)
}

// logRejected names what is configured and not served.
func (c *Config) logRejected() {
	for path, why := range c.bad {
		c.Log.Warn("repository not served", "repo", path, "reason", why)
	}
}

// rejection is what a client is told that asks for an entry which is not served; nil if there is none.
func (c *Config) rejection(path string) error {
	why := c.bad[path]
	var refusal *job.Refusal
	if !errors.As(why, &refusal) {
		return why
	}
	if c.Account != nil { // who asks has named it
		return why
	}
	told := *refusal
	told.Message = "the supervisor does not serve a configured repository: " + refusal.Message
	return &told
}

func replaced(path string) error {
	return &job.Refusal{
		Step:    "repo",
		Message: fmt.Sprintf("%q is another directory than the one the operator serves", path),
		Hint:    "it was replaced since the supervisor was started: restart it to serve the new one",
	}
}

// elsewhere is all that a client is told whose descriptor does not lead to the same directory by its path. Why it does
// not is no client's business: the path is one of its own mount namespace, and could name anything of the host's there.
func elsewhere(path string) error {
	return &job.Refusal{
		Step:    "repo",
		Message: fmt.Sprintf("the supervisor does not find the directory that was passed at %q", path),
		Hint:    "it was moved or replaced meanwhile, its path has a symbolic link in it, or it is a mount that only your session sees",
	}
}

// checkRoot refuses a directory of root unless root alone decides what its path leads to: jobs there are root in it.
func (r *repo) checkRoot() error {
	if r.uid != 0 {
		return nil
	}
	if err := directory.RootOnly(r.path, r.dir); err != nil {
		return &job.Refusal{
			Step:    "repo",
			Message: fmt.Sprintf("%q belongs to root, and jobs there would be root in it, but %v", r.path, err),
			Hint:    "give the repository to an ordinary user, or have every directory above it be root's alone to write",
		}
	}
	return nil
}

// nogroup is a group that owns nothing, by the convention of every distribution.
const nogroup = 65534

// groupFor is the group that a directory of group gid and user uid has for the peer's jobs: that one if the peer is in it,
// or else the peer's own. Without this a user would be in the group of each directory that they are given or can make
// below one with the set-group-ID bit. Root's own group is nobody's fallback.
func (p Peer) groupFor(uid, gid uint32) uint32 {
	a := p.account()
	if a.UID == 0 { // root asks on behalf of the owner
		return ownerGroup(uid, gid)
	}
	switch {
	case a.Has(gid):
		return gid
	case a.GID == 0:
		return nogroup
	}
	return a.GID
}

// account is whose rights the peer has.
func (p Peer) account() directory.Account {
	switch {
	case p.Account != nil:
		return *p.Account
	case p.Embedded:
		return directory.Account{}
	}
	return directory.Account{UID: p.UID, GID: p.UID}
}

// ownerGroup is groupFor of a peer that is root: the directory's group if its owner is in it, or else the owner's own. Of an
// owner whom the host's files do not know, nothing speaks against a group but that it is root's.
func ownerGroup(uid, gid uint32) uint32 {
	a, known := lookupAccount(uid)
	switch {
	case known && !a.Has(gid):
		gid = a.GID
	case known || gid != 0:
		return gid
	}
	if gid == 0 && uid != 0 {
		return nogroup
	}
	return gid
}

// openShown opens the toolchains that the command line of an embedded supervisor names as its account would.
func (c *Config) openShown() error {
	for i, path := range c.Shown {
		path, err := directory.Absolute(path)
		if err != nil {
			return err
		}
		dir, err := c.openDir(path)
		if err != nil {
			return fmt.Errorf("toolchain: %w", err)
		}
		dir.Close()
		c.Shown[i] = path
	}
	c.Shown = slices.DeleteFunc(c.Shown, func(path string) bool { return slices.Contains(c.Toolchains, path) })
	return nil
}
