package admit

import (
	"errors"
	"path/filepath"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/isolate/host"
)

// A Current has the decisions that apply at present. A request takes them once, with Now, so that all of it is decided
// by one configuration, also if another one is read meanwhile. The zero value is not ready for use.
type Current struct{ at atomic.Pointer[Served] }

// NewCurrent returns a Current that has s.
func NewCurrent(s *Served) *Current {
	c := &Current{}
	c.at.Store(s)
	return c
}

// Now returns the decisions for a request that begins now. They do not change any more.
func (c *Current) Now() *Served { return c.at.Load() }

// Reload returns the decisions by another configuration of the same supervisor. The caller applies them with Replace.
//
// Directories are opened by helper processes, each within probe.DefaultPatience: the owner of a configured directory may have
// mounted a file system there that never answers. A directory that cannot be opened is not served, and Rejected returns the
// reason.
func (c *Current) Reload(config Config) (*Served, error) {
	config.reloaded = true
	return New(config, c.Now().probes)
}

// Replace makes the decisions of s apply to requests that begin from now on.
func (c *Current) Replace(s *Served) { c.at.Store(s) }

// probeEntry returns inode and owner of the directory at path, found by a helper process.
func (s *Served) probeEntry(path string) (host.Inode, uint32, error) {
	entry := s.probes.Entry(path)
	id, err := entry.Identify(path)
	if errors.Is(err, unix.ELOOP) {
		err = &directory.LinkError{Path: path, Link: firstLink(path, func(part string) error {
			_, err := entry.Identify(part)
			return err
		})}
	}
	return id.Inode, id.UID, err
}

// Holds reports whether any client may still have jobs in r: an unused jail of another repository is worth dropping.
func (s *Served) Holds(r *Repo) bool {
	if r.Dir == nil { // the jail has no repository
		return true
	}
	if s.bad[r.Path] != nil {
		return false
	}
	return s.Own || s.pinned[r.Path] == r.Inode
}

// StillServes refuses the next job of a session whose repository peer, the session's user, may no longer use: the
// configuration was read again after the session was opened. Before that, it refuses nothing.
func (s *Served) StillServes(peer host.Peer, r *Repo) error {
	if !s.reloaded || r.Dir == nil {
		return nil
	}
	if err := s.still(peer, r); err != nil {
		return err
	}
	c := r.Common
	if c == nil || s.ServesTo(peer, c.Path) || s.Own && c.UID == peer.UID {
		return nil
	}
	if filepath.Base(c.Path) == ".git" && s.ServesTo(peer, filepath.Dir(c.Path)) {
		return nil
	}
	return notServed(c.Path)
}

func (s *Served) still(peer host.Peer, r *Repo) error {
	if err := s.rejection(r.Path); err != nil {
		return err
	}
	switch {
	case s.ServesTo(peer, r.Path):
		if s.pinned[r.Path] != r.Inode {
			return refuseReplaced(r.Path)
		}
		return nil
	case peer.UID == 0, s.Own && r.UID == peer.UID: // see servesOpen and ServesAgain
		return nil
	}
	return notServed(r.Path)
}

// Rejected returns the configured paths that are not served, sorted, and a function that returns the reason of each.
func (s *Served) Rejected() (paths []string, why func(path string) error) {
	for path := range s.bad {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths, func(path string) error { return s.bad[path] }
}
