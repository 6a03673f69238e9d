package admit

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/isolate/host"
	"corral/isolate/probe"
	"corral/job"
	"corral/rootfs"
)

// Config is the operator's configuration of the directories that clients may have jobs in, and of their limits.
type Config struct {
	Entries  []Entry            // directories that are served
	Commons  []string           // git directories of served worktrees; only for embedded supervisors
	Own      bool               // also serve each client the directories it owns
	Account  *directory.Account // with whose rights the directories are opened; nil means root's
	Defaults job.Limits         // for fields that a request leaves 0
	Ceilings job.Limits         // maximum per request; zero fields are unlimited
	Network  json.RawMessage    // Entry.Network of directories that are served without an entry
	Requests *Requests          // likewise
	Private  []string           // directories of the supervisor: nothing in them is served
	Log      *slog.Logger

	reloaded bool // by Current.Reload
}

// A Served decides which directories a client may have jobs in, and opens them.
type Served struct {
	Config
	probes  *probe.Prober
	pipes   uint64         // device number of the file system of anonymous pipes
	refused []rootfs.Place // not served, in addition to rootfs.Places
	homes   []string       // home directories of users

	pinned  map[string]host.Inode // inode of each served repository, by path
	bad     map[string]error      // why the other repositories are not served, by path
	commons map[string]host.Inode // inode of each of Commons, by path
}

// New records the inodes of the configured directories. Entries that cannot be served are left out; LogRejected
// logs them.
func New(c Config, probes *probe.Prober) (*Served, error) {
	s := &Served{Config: c, probes: probes}
	var err error
	if s.pipes, err = pipeDevice(); err != nil {
		return nil, err
	}
	s.Entries = slices.Clone(c.Entries)
	s.pinCommons()
	s.pinRepos()
	s.refused = host.Homes()
	for _, home := range s.refused {
		s.homes = append(s.homes, home.Path)
	}
	s.refused = append(s.refused, host.StateDirs(c.Private...)...)
	for _, r := range s.Entries {
		if err := s.checkPath(r.Path); err != nil {
			s.reject(r.Path, err)
		}
	}
	return s, nil
}

// ServesTo reports whether the operator serves path to peer.
func (s *Served) ServesTo(peer host.Peer, path string) bool {
	return slices.ContainsFunc(s.Entries, func(r Entry) bool { return r.Path == path && r.isFor(peer) })
}

// Serves decides whether a client may have jobs in the requested directory, and pins it. Without a descriptor, the
// operator must serve the path to the client. With one, the operator must serve the directory that it refers to, or,
// if Config.Own is set, the client must own it.
func (s *Served) Serves(peer host.Peer, path string, dir *os.File) (*Repo, error) {
	if dir == nil {
		return s.servesPath(peer, path)
	}
	id, err := s.probes.Identify(peer.Payer(), dir)
	if err != nil {
		return nil, refuseRepo(path, err)
	}
	if id.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil, &job.Refusal{Step: "repo", Message: "the descriptor passed as the repository is not a directory"}
	}
	r, err := s.servesOpen(peer, path, dir, id)
	if err != nil {
		return nil, err
	}
	return s.asPassed(peer, r, dir)
}

// asPassed records in r whether the mount through which the peer opened the directory is read-only; on failure it
// closes r. If that mount is the supervisor's own, nothing needs to be recorded, because a clone of it has its flags.
func (s *Served) asPassed(peer host.Peer, r *Repo, dir *os.File) (*Repo, error) {
	if mount, err := probe.MountID(dir); err == nil {
		if own, err := probe.MountID(r.Dir); err == nil && own == mount {
			return r, nil
		}
	}
	found, err := s.probes.FileSystem(peer.Payer(), dir)
	if err != nil {
		r.Close()
		return nil, refuseRepo(r.Path, err)
	}
	r.ReadOnly = found.FSFlags&unix.ST_RDONLY != 0
	return r, nil
}

// firstLink returns the first prefix of path that leads through a symbolic link, path itself at the latest; "" if
// there is none any more. open opens a prefix in a probe. Each probe has a timeout, and their number is logarithmic in the path's length.
func firstLink(path string, open func(part string) error) string {
	var ends []int // lengths of the prefixes of path that end at a component, path included
	for i := 1; i <= len(path); i++ {
		if i == len(path) || path[i] == '/' {
			ends = append(ends, i)
		}
	}
	n := sort.Search(len(ends), func(i int) bool {
		return errors.Is(open(path[:ends[i]]), unix.ELOOP)
	})
	if n == len(ends) {
		return ""
	}
	return path[:ends[n]]
}

// servesOpen is Serves for the directory dir, whose identity is already known.
func (s *Served) servesOpen(peer host.Peer, path string, dir *os.File, id probe.Identity) (*Repo, error) {
	// Fast path: the descriptor is the pinned inode of a served repository, so readlink(/proc/self/fd), the slowest
	// step here, is skipped. Nothing is gained by a false path: the client could have sent the path alone.
	if s.pinned[path] == id.Inode && s.ServesTo(peer, path) {
		if r, err := s.servesPath(peer, path); err == nil {
			return r, nil
		}
	}
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(dir.Fd())))
	if err != nil {
		return nil, refuseRepo(path, err)
	}
	served := s.ServesTo(peer, real)
	switch {
	case served:
		if err := s.rejection(real); err != nil {
			return nil, err
		}
		if s.pinned[real] != id.Inode {
			return nil, refuseReplaced(real)
		}
		return s.servesPath(peer, real)
	case peer.Embedded, !s.Own:
		return nil, notServed(real)
	case id.UID != peer.UID:
		return nil, &job.Refusal{
			Step:    "repo",
			Message: fmt.Sprintf("%q belongs to user %d, not to you (user %d)", real, id.UID, peer.UID),
			Hint:    "the operator can serve it to you in the supervisor's configuration",
		}
	}
	if err := s.checkPath(real); err != nil { // served directories were checked by New
		return nil, err
	}
	r, err := s.pin(peer, real, id.Inode)
	if err == nil && peer.UID != 0 && r.UID != peer.UID { // a mount of the client's own shows the directory as the client's
		r.Close()
		return nil, refuseMoved(real)
	}
	if err != nil && peer.UID != 0 && !errors.As(err, new(probe.StalledError)) && !errors.Is(err, host.ErrEnding) {
		return nil, refuseMoved(real)
	}
	if err == nil { // the directory's owner may learn why an entry for it is not served
		if rejected := s.rejection(real); rejected != nil {
			r.Close()
			return nil, rejected
		}
	}
	return r, err
}

// servesPath pins a directory that the operator serves to the peer. The owner is checked again, because it may have
// changed.
func (s *Served) servesPath(peer host.Peer, path string) (*Repo, error) {
	if !s.ServesTo(peer, path) {
		return nil, notServed(path)
	}
	if err := s.rejection(path); err != nil {
		return nil, err
	}
	known := s.pinned[path]
	if known == (host.Inode{}) {
		return nil, notServed(path)
	}
	r, err := s.pin(peer, path, known)
	if err != nil {
		return nil, err
	}
	for _, entry := range s.Entries {
		if entry.Path != path {
			continue
		}
		if err := entry.checkOwner(r.UID); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

func notServed(path string) error {
	return &job.Refusal{
		Step:    "repo",
		Message: fmt.Sprintf("the supervisor does not serve %q", path),
		Hint:    "start the supervisor with --repo, or add it to its configuration",
	}
}

// checkPath refuses directories that cannot be a repository for any client.
func (s *Served) checkPath(path string) error {
	if len(path) > 4000 || strings.HasSuffix(path, " (deleted)") || !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return &job.Refusal{Step: "repo", Message: fmt.Sprintf("%.80q cannot be served: it must be the absolute, clean path of an existing directory, at most 4000 bytes", path)}
	}
	if err := errors.Join(rootfs.CheckRepoPath(path, s.refused...), rootfs.CheckHidden(path, s.homes)); err != nil {
		return &job.Refusal{Step: "repo", Message: err.Error(), Hint: "use the directory of a project"}
	}
	return nil
}

// pin opens path, which must be absolute and clean and contain no symbolic link, for jobs of the peer. If want is not
// zero, the directory must have that inode.
func (s *Served) pin(peer host.Peer, path string, want host.Inode) (*Repo, error) {
	dir, id, err := s.probes.OpenDir(peer.Payer(), path)
	if errors.Is(err, unix.ELOOP) {
		err = &directory.LinkError{Path: path, Link: firstLink(path, func(part string) error {
			dir, _, err := s.probes.OpenDir(peer.Payer(), part)
			s.probes.Discard(peer.Payer(), dir)
			return err
		})}
	}
	if err != nil {
		return nil, refuseRepo(path, err)
	}
	r := &Repo{
		Path: path, Dir: dir, Inode: id.Inode, Owner: host.Owner{UID: id.UID, GID: peer.GroupFor(id.UID, id.GID), Group: id.GID},
		probes: s.probes, payer: peer.Payer(),
	}
	if err := r.checkRoot(); err != nil {
		r.Close()
		return nil, err
	}
	if want != (host.Inode{}) && want != id.Inode {
		r.Close()
		return nil, refuseReplaced(path)
	}
	return r, nil
}

// ServesAgain pins the repository of a kept layer, if it is still served to the client. is is its inode when the layer was
// kept, and ReadOnly whether it was passed from a read-only mount.
func (s *Served) ServesAgain(peer host.Peer, path string, is host.Inode, readOnly bool) (*Repo, error) {
	if err := s.checkPath(path); err != nil {
		return nil, err
	}
	if err := s.rejection(path); err != nil {
		return nil, err
	}
	r, err := s.pin(peer, path, is)
	if err != nil {
		return nil, err
	}
	r.ReadOnly = readOnly
	if s.ServesTo(peer, path) || peer.UID == 0 && !peer.Embedded || s.Own && r.UID == peer.UID {
		return r, nil
	}
	r.Close()
	return nil, notServed(path)
}
