package isolate

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/isolate/host"
	"corral/job"
)

// A configuration entry can become invalid without a mistake of the operator: the owner of the directory, or of one
// above it, replaces it by a link or by another user's directory. Such an entry is not served, but it does not keep
// the supervisor from starting, because otherwise any of these users could. It is logged with the reason, and a
// client for whom the entry is receives the reason.

// pinRepos opens the directory of each entry, records its inode, and rejects the entries that cannot be served.
func (c *Config) pinRepos() {
	c.pinned, c.bad = map[string]host.Inode{}, map[string]error{}
	for i := range c.Repos {
		r := &c.Repos[i]
		path, err := directory.Absolute(r.Path)
		if err != nil {
			c.reject(r.Path, err)
			continue
		}
		r.Path = path
		if err := c.pinRepo(r, host.Inode{}); err != nil {
			c.reject(r.Path, err)
		}
	}
	c.rejectOverlaps()
}

// pinRepo opens the directory of an entry and records its inode. If want is not zero, the inode must be want.
func (c *Config) pinRepo(r *Repo, want host.Inode) error {
	dir, err := c.openDir(r.Path)
	if err != nil {
		return refuseRepo(r.Path, err)
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return refuseRepo(r.Path, err)
	}
	is := host.InodeOf(&st)
	if want != (host.Inode{}) && is != want {
		return refuseReplaced(r.Path)
	}
	if err := r.checkOwner(st.Uid); err != nil {
		return err
	}
	c.pinned[r.Path] = is
	return nil
}

// OpenDir opens a directory that root named, with the rights of the account for which an embedded supervisor was
// started, or with root's.
func (c *Config) openDir(path string) (*os.File, error) {
	return directory.OpenFor(c.Account, path)
}

// checkOwner compares the owner of an entry's directory with the configured owner.
func (r *Repo) checkOwner(uid uint32) error {
	if r.Owner == nil || *r.Owner == uid {
		return nil
	}
	return &job.Refusal{
		Step:    "repo",
		Message: fmt.Sprintf("%q belongs to user %d, and its entry in the configuration says user %d", r.Path, uid, *r.Owner),
		Hint:    "find out who replaced it; if the new owner is correct, change the entry's `owner` and restart the supervisor",
	}
}

// rejectOverlaps rejects entries of which one directory contains the other: a job in the outer one could replace the
// inner one and would not be subject to the inner entry's settings. Two entries for one path are one directory to
// which both apply.
func (c *Config) rejectOverlaps() {
	for i, a := range c.Repos {
		for _, b := range c.Repos[i+1:] {
			same := c.pinned[a.Path] == c.pinned[b.Path] && c.pinned[a.Path] != (host.Inode{})
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

// reject marks the entries for a path as not served. The first reason is kept.
func (c *Config) reject(path string, why error) {
	if c.bad[path] == nil {
		c.bad[path] = why
	}
	delete(c.pinned, path)
}

// logRejected logs the entries that are not served.
func (c *Config) logRejected() {
	for path, why := range c.bad {
		c.Log.Warn("repository not served", "repo", path, "reason", why)
	}
}

// rejection returns the error for a client that requests an entry which is not served; nil if path has no such entry.
func (c *Config) rejection(path string) error {
	why := c.bad[path]
	var refusal *job.Refusal
	if !errors.As(why, &refusal) {
		return why
	}
	if c.Account != nil { // the client named it on the command line
		return why
	}
	forClient := *refusal
	forClient.Message = "the supervisor does not serve a configured repository: " + refusal.Message
	return &forClient
}

func refuseReplaced(path string) error {
	return &job.Refusal{
		Step:    "repo",
		Message: fmt.Sprintf("%q is another directory than the one the operator serves", path),
		Hint:    "it was replaced since the supervisor was started: restart it to serve the new one",
	}
}

// refuseMoved is the only error for a client whose descriptor does not refer to the directory at its path. The exact
// reason is withheld: the path is from the client's mount namespace and could name anything in the host's.
func refuseMoved(path string) error {
	return &job.Refusal{
		Step:    "repo",
		Message: fmt.Sprintf("the directory that was passed is not at %q in the supervisor's mount namespace", path),
		Hint:    "it was moved or replaced in the meantime, its path has a symbolic link in it, or it is a mount that only your session sees",
	}
}

// checkRoot refuses a directory of root unless root alone controls where its path leads, because jobs in it are root
// in it.
func (r *repo) checkRoot() error {
	if r.UID != 0 {
		return nil
	}
	if err := directory.RootOnly(r.path, r.dir); err != nil {
		return &job.Refusal{
			Step:    "repo",
			Message: fmt.Sprintf("%q belongs to root, and jobs there would be root in it, but %v", r.path, err),
			Hint:    "give the repository to an ordinary user, or make every directory above it writable by root alone",
		}
	}
	return nil
}
