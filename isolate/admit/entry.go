package admit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"

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
func (s *Served) pinRepos() {
	s.pinned, s.bad = map[string]host.Inode{}, map[string]error{}
	all := make([]found, len(s.Entries))
	var looks sync.WaitGroup
	turns := make(chan struct{}, looksAtOnce)
	for i := range s.Entries {
		r := &s.Entries[i]
		path, err := directory.Absolute(r.Path)
		if err != nil {
			all[i].err = err
			continue
		}
		r.Path = path
		turns <- struct{}{}
		looks.Go(func() {
			all[i] = s.look(path)
			<-turns
		})
	}
	looks.Wait()
	for i := range s.Entries {
		if err := s.pinRepo(&s.Entries[i], all[i], host.Inode{}); err != nil {
			s.reject(s.Entries[i].Path, err)
		}
	}
	s.rejectOverlaps()
}

// looksAtOnce is how many directories are opened in parallel, so that those of one user, whose file systems do not answer, delay
// the start or the reload for the others less.
const looksAtOnce = 32

// found is what was found at the path of an entry.
type found struct {
	inode host.Inode
	uid   uint32 // the owner
	err   error
}

// look opens the directory at path with the rights of the account for which an embedded supervisor was started, or with root's: then
// in a helper process, because the directory's owner may have mounted a file system there that never answers, and nobody could start
// a supervisor.
func (s *Served) look(path string) (f found) {
	if s.Account != nil {
		f.inode, f.uid, f.err = s.lookAt(path)
	} else {
		f.inode, f.uid, f.err = s.probeEntry(path)
	}
	if f.err != nil {
		f.err = refuseRepo(path, f.err)
	}
	return f
}

// pinRepo records the inode that was found at the path of an entry. If want is not zero, the inode must be want.
func (s *Served) pinRepo(r *Entry, is found, want host.Inode) error {
	if is.err != nil {
		return is.err
	}
	if want != (host.Inode{}) && is.inode != want {
		return refuseReplaced(r.Path)
	}
	if err := r.checkOwner(is.uid); err != nil {
		return err
	}
	s.pinned[r.Path] = is.inode
	return nil
}

// lookAt returns inode and owner of the directory at path.
func (s *Served) lookAt(path string) (host.Inode, uint32, error) {
	dir, err := s.openDir(path)
	if err != nil {
		return host.Inode{}, 0, err
	}
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return host.Inode{}, 0, err
	}
	return host.InodeOf(&st), st.Uid, nil
}

// openDir opens a directory that root named, with the rights of the account for which an embedded supervisor was
// started, or with root's.
func (s *Served) openDir(path string) (*os.File, error) {
	return directory.OpenFor(s.Account, path)
}

// checkOwner compares the owner of an entry's directory with the configured owner.
func (r *Entry) checkOwner(uid uint32) error {
	if r.Owner == nil || *r.Owner == uid {
		return nil
	}
	return &job.Refusal{
		Step:    "repo",
		Message: fmt.Sprintf("%q belongs to user %d, and its entry in the configuration says user %d", r.Path, uid, *r.Owner),
		Hint:    "find out who replaced it; if the new owner is correct, change the entry's `owner`, then: corral reload",
	}
}

// rejectOverlaps rejects entries whose directories contain each other: a job in the outer one could replace the
// inner one and would not be subject to the inner entry's settings. Two entries for one path are one directory to
// which both apply.
func (s *Served) rejectOverlaps() {
	for i, a := range s.Entries {
		for _, b := range s.Entries[i+1:] {
			same := s.pinned[a.Path] == s.pinned[b.Path] && s.pinned[a.Path] != (host.Inode{})
			if a.Path == b.Path || !same && !directory.Overlap(a.Path, b.Path) {
				continue
			}
			for _, pair := range [][2]string{{a.Path, b.Path}, {b.Path, a.Path}} {
				s.reject(pair[0], &job.Refusal{
					Step:    "repo",
					Message: fmt.Sprintf("%q overlaps %q, which is served too: jobs in one could replace the other", pair[0], pair[1]),
					Hint:    "serve only one of them, then: corral reload",
				})
			}
		}
	}
}

// reject marks the entries for a path as not served. The first reason is kept.
func (s *Served) reject(path string, why error) {
	if s.bad[path] == nil {
		s.bad[path] = why
	}
	delete(s.pinned, path)
}

// Add adds an entry for the directory at path, which must have this inode. If it cannot be served, a client that
// requests it receives the reason.
func (s *Served) Add(path string, is host.Inode) {
	r := Entry{Path: path}
	s.Entries = append(s.Entries, r)
	err := s.checkPath(path)
	if err == nil {
		err = s.pinRepo(&r, s.look(path), is)
	}
	if err != nil {
		s.reject(path, err)
	}
}

// LogRejected logs the entries that are not served.
func (s *Served) LogRejected() {
	for path, why := range s.bad {
		s.Log.Warn("repository not served", "repo", path, "reason", why)
	}
}

// rejection returns the error for a client that requests an entry which is not served; nil if path has no such entry.
func (s *Served) rejection(path string) error {
	why := s.bad[path]
	var refusal *job.Refusal
	if !errors.As(why, &refusal) {
		return why
	}
	if s.Account != nil { // the client named it on the command line
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
		Hint:    "it was replaced since the supervisor read its configuration; to serve the new one: corral reload",
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
func (r *Repo) checkRoot() error {
	if r.UID != 0 {
		return nil
	}
	if err := directory.RootOnly(r.Path, r.Dir); err != nil {
		return &job.Refusal{
			Step:    "repo",
			Message: fmt.Sprintf("%q belongs to root, and jobs there would be root in it, but %v", r.Path, err),
			Hint:    "give the repository to an ordinary user, or make every directory above it writable by root alone",
		}
	}
	return nil
}

// A Entry is a directory that the operator serves.
type Entry struct {
	Path string
	// UIDs are the users who may run jobs in it; nil means every user who can reach the supervisor's socket.
	UIDs []uint32
	// Owner is the required owner of the directory; nil means any.
	Owner *uint32
	// The following apply whatever a front-end requests:
	Ceilings job.Limits     // maximum for its jobs, in addition to Config.Ceilings; zero fields are unlimited
	ReadOnly bool           // no job writes to it
	Overlay  bool           // jobs write only to their session's layer, from which changes can be applied
	Profile  string         // system call profile of its jobs; "" lets each job choose
	Protect  job.Protection // minimum protection of sensitive paths for jobs that write to it
	// Network has the hosts that its jobs may reach, as network.Encode writes them; nil is none.
	Network json.RawMessage
	// Requests is what Network needs besides if rules are about requests; nil: none is.
	Requests *Requests
}
