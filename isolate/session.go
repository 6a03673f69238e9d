package isolate

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/layer"
	"corral/isolate/wire"
	"corral/job"
	"corral/seccomp"
)

// A session is a jail of one client with a layer of its own: what its jobs write lasts until it ends. Its jobs run in
// parallel under one user.
type session struct {
	s         *Supervisor
	id        string
	spec      wire.Open
	peer      Peer
	workspace job.Workspace
	profile   string
	opened    time.Time
	idle      time.Duration
	from      string // the kept layer that it goes on with, or ""
	layer     *layer.Layer
	jail      *jail

	endMu sync.Mutex // before layerMu; of who ends the session

	layerMu sync.Mutex // before mu
	closed  bool       // guarded by layerMu: the layer is closed

	mu       sync.Mutex
	used     time.Time   // guarded by mu
	jobs     int         // guarded by mu
	writers  int         // guarded by mu: of jobs, those that may write to the layer
	applying bool        // guarded by mu: one of jobs applies the layer to the repository
	timer    *time.Timer // guarded by mu: ends an idle session
	ending   bool        // guarded by mu: no more jobs
	keep     bool        // guarded by mu: its layer is to be kept, if there is something on it
	unkept   bool        // guarded by mu: an end was refused because the layer could not be kept
	kept     bool        // set before the jail has gone
	err      error       // likewise: why it was not kept
}

func (ss *session) root() bool    { return ss.spec.Flags&wire.OpenRoot != 0 }
func (ss *session) shares() bool  { return ss.spec.Flags&wire.OpenShare != 0 }
func (ss *session) lasts() bool   { return ss.spec.Flags&wire.OpenLasting != 0 }
func (ss *session) imports() bool { return ss.spec.Import != "" }

var labelPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{0,64}$`)

func sessionRefusal(format string, a ...any) *job.Refusal {
	return &job.Refusal{Step: "session", Message: fmt.Sprintf(format, a...)}
}

// noSession is what is said of a session that is not there and of one that is somebody else's.
func noSession(id string) error {
	r := sessionRefusal("no session %.40q", id)
	r.Hint = "it has ended, or was never yours"
	return r
}

func sessionID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails, see crypto/rand
	return hex.EncodeToString(b)
}

// open opens a session for a client. Every job in it comes from who has the same user id.
func (s *Supervisor) open(peer Peer, spec wire.Open, dir, common *os.File) (*session, error) {
	if !s.begin() {
		return nil, errEnding
	}
	defer s.work.Done()
	ss := &session{s: s, id: sessionID(), spec: spec, peer: peer, opened: time.Now(), used: time.Now()}
	if err := ss.check(); err != nil {
		return nil, err
	}
	if ss.workspace == job.Overlay {
		if err := s.roomToKeep(peer); err != nil {
			return nil, err
		}
	}
	r, err := ss.place(dir, common)
	if err != nil {
		return nil, err
	}
	if ss, err = s.start(ss, r); err != nil {
		return ss, err
	}
	ss.stamp()
	return ss, nil
}

// checkOpen says why a client cannot have a session, as far as that depends on the request and the repository. It makes
// nothing.
func (s *Supervisor) checkOpen(peer Peer, spec wire.Open, dir, common *os.File) error {
	if !s.begin() {
		return errEnding
	}
	defer s.work.Done()
	ss := &session{s: s, spec: spec, peer: peer}
	if err := ss.check(); err != nil {
		return err
	}
	r, err := ss.place(dir, common)
	if err != nil {
		return err
	}
	defer r.close()
	if ss.imports() {
		return nil
	}
	if err := s.inspectAll(peer.payer(), r); err != nil {
		return err
	}
	// Whether the file system takes id maps is known when it is asked to.
	m, err := s.userns.idmap(r.uid, r.gid, r.uid, 1)
	if err != nil {
		return err
	}
	defer m.Close()
	mount, err := r.clone(m, true)
	if err != nil {
		return err
	}
	return mount.Close()
}

// check refuses what does not depend on the repository, and fills in defaults.
func (ss *session) check() error {
	spec := &ss.spec
	switch {
	case !labelPattern.MatchString(spec.Name):
		return sessionRefusal("session name %q: letters, digits, dots, dashes and underscores, at most %d", spec.Name, wire.MaxLabel)
	case spec.Profile != "" && !known(spec.Profile):
		return unknownProfile(spec.Profile)
	case ss.imports() && job.CheckImageName(spec.Import) != nil:
		return sessionRefusal("root file system %q: a name is letters, digits, dots, dashes and underscores, small, at most %d", spec.Import, wire.MaxLabel)
	case ss.imports() && !ss.peer.mayManage():
		return onlyRoot("imports a root file system")
	case ss.imports() && ss.s.images.has(spec.Import):
		r := sessionRefusal("there is a root file system %q already", spec.Import)
		r.Hint = "choose another name, or remove it: corral rootfs remove " + spec.Import
		return r
	case spec.Image != "" && (job.CheckImageName(spec.Image) != nil || !ss.root()):
		return sessionRefusal("root file system %q: the session does not ask for one of its own", spec.Image)
	case spec.Disk < 0 || spec.Inodes < 0 || spec.Idle < 0:
		return sessionRefusal("a session's bounds are not negative")
	}
	ss.workspace = job.Direct
	if spec.Flags&wire.FlagReadOnly != 0 {
		ss.workspace = job.ReadOnly
	}
	if spec.Flags&wire.FlagOverlay != 0 {
		ss.workspace = job.Overlay
	}
	l := ss.s.config.Layers
	if spec.Disk == 0 {
		spec.Disk = l.Disk
	}
	if spec.Inodes == 0 {
		spec.Inodes = min(l.Inodes, spec.Disk/8192)
	}
	if spec.Disk > l.MaxDisk || spec.Inodes > l.MaxInodes {
		return &job.Refusal{Step: "limits", Message: fmt.Sprintf("a layer of %s and %d files is more than the operator allows, which is %s and %d files",
			job.FormatSize(spec.Disk), spec.Inodes, job.FormatSize(l.MaxDisk), l.MaxInodes)}
	}
	if err := layer.Check(spec.Disk, spec.Inodes); err != nil {
		return &job.Refusal{Step: "limits", Message: err.Error()}
	}
	if ss.idle = time.Duration(spec.Idle); ss.idle == 0 {
		ss.idle = l.Idle
	}
	ss.idle = min(ss.idle, l.MaxIdle)
	return nil
}

// place pins the repository and holds the session to what the operator said of it.
func (ss *session) place(dir, common *os.File) (*repo, error) {
	if ss.imports() {
		return &repo{path: importDir}, nil
	}
	r, err := ss.s.serves(ss.peer, ss.spec.Repo, dir)
	if err != nil {
		return nil, err
	}
	q := &Request{Run: wire.Run{Flags: ss.spec.Flags & (wire.FlagReadOnly | wire.FlagOverlay), Profile: ss.spec.Profile}}
	if !ss.root() { // whose tree has no place for it
		r.common = ss.s.common(ss.peer, ss.spec.Common, common, r)
	}
	if _, ss.profile, err = ss.s.config.clampLimits(r, q, ss.s.config.Defaults); err != nil {
		r.close()
		return nil, err
	}
	if q.narrowed {
		ss.spec.Flags |= wire.FlagReadOnly
		ss.workspace = job.ReadOnly
	}
	ss.spec.Repo = r.path
	return r, nil
}

// start builds the session's jail, with the layer in it, and returns the session when that stands. When there is one of the
// same id, which goes on with the same kept layer, it is returned instead. It takes over r.
func (s *Supervisor) start(ss *session, r *repo) (*session, error) {
	if ss.profile == "" {
		ss.profile = seccomp.Profiles()[0]
	}
	s.mu.Lock()
	if other := s.sessions[ss.id]; other != nil {
		s.mu.Unlock()
		r.close()
		return other, other.stands()
	}
	err := s.roomForSession(ss.peer)
	if err == nil && ss.from == "" {
		err = s.nameTaken(ss)
	}
	if err != nil {
		s.mu.Unlock()
		r.close()
		return nil, err
	}
	j := s.newJail(r.key(ss.profile, ss.id), r)
	j.by, j.session, ss.jail = ss.peer.payer(), ss, j
	s.jails[j.key] = j
	s.sessions[ss.id] = ss
	s.work.Add(1)
	s.mu.Unlock()
	go j.live()
	if err := ss.stands(); err != nil {
		return nil, err
	}
	ss.armIdleTimer()
	return ss, nil
}

// stands waits until the session's jail is built or has failed and nothing of it is left. Before, nothing of the session
// may be used but its id and whose it is.
func (ss *session) stands() error {
	<-ss.jail.built
	if ss.jail.failure != nil {
		<-ss.jail.gone
		return ss.jail.failure
	}
	return nil
}

// nameTaken refuses a name that an open session of the same user has: commands take it in place of the id. It is called with
// mu held.
func (s *Supervisor) nameTaken(ss *session) error {
	if ss.spec.Name == "" {
		return nil
	}
	for _, other := range s.sessions {
		if other.from == "" && other.spec.Name == ss.spec.Name && other.peer.UID == ss.peer.UID && other.peer.Embedded == ss.peer.Embedded {
			r := sessionRefusal("a session of yours is called %q already: %s", ss.spec.Name, other.id)
			r.Hint = "choose another name, or end it: corral session close " + ss.spec.Name
			return r
		}
	}
	return nil
}

func (s *Supervisor) roomForSession(peer Peer) error {
	if s.ended {
		return errEnding
	}
	return s.roomForJail(peer)
}

// forget takes an ended session out of the list.
func (s *Supervisor) forget(ss *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[ss.id] == ss {
		delete(s.sessions, ss.id)
	}
}

// sessionOf returns a session of peer's: an open one, or one that goes on with a kept layer. The caller must leave it.
func (s *Supervisor) sessionOf(peer Peer, id string) (*session, error) {
	s.mu.Lock()
	ss := s.sessions[id]
	s.mu.Unlock()
	if ss == nil {
		return s.resume(peer, id)
	}
	if !ss.of(peer) || ss.stands() != nil || !ss.use() {
		return nil, noSession(id)
	}
	return ss, nil
}

// of says whether peer may use the session: it is its own, or peer is root at a daemon's socket.
func (ss *session) of(peer Peer) bool {
	return peer.UID == ss.peer.UID && peer.Embedded == ss.peer.Embedded || peer.UID == 0 && !peer.Embedded
}

// use counts one more job, unless the session is ending.
func (ss *session) use() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.ending {
		return false
	}
	ss.jobs++
	ss.used = time.Now()
	if ss.timer != nil {
		ss.timer.Stop()
		ss.timer = nil
	}
	return true
}

func (ss *session) leave() {
	ss.mu.Lock()
	ss.jobs--
	ss.used = time.Now()
	ss.mu.Unlock()
	ss.armIdleTimer()
}

// armIdleTimer starts the clock of a session without jobs.
func (ss *session) armIdleTimer() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.jobs > 0 || ss.ending || ss.timer != nil {
		return
	}
	ss.timer = time.AfterFunc(ss.idle, ss.expireIfIdle)
}

// expireIfIdle ends a session that ran no job for its time. What its owner has not looked at yet is kept.
func (ss *session) expireIfIdle() {
	if !ss.s.begin() {
		return
	}
	defer ss.s.work.Done()
	// Half a root file system is none.
	_, err := ss.endIf(!ss.imports(), true)
	ss.logEnd(err)
}

// logEnd logs why a session did not end in order, which nobody else is told. A refusal is in the log.
func (ss *session) logEnd(err error) {
	if err != nil && !errors.As(err, new(*job.Refusal)) {
		ss.s.config.Log.Error("session", "session", ss.id, "error", err)
	}
}

// end ends the session and every job in it, and waits for that. With keep, an overlay with something on it stays; so does
// a root file system that was imported. It says whether it did. If an overlay cannot be kept the session goes on, and the error
// is a *job.Refusal.
func (ss *session) end(keep bool) (bool, error) { return ss.endIf(keep, false) }

// endIf is end; with onlyIdle it does nothing to a session in which jobs run.
func (ss *session) endIf(keep, onlyIdle bool) (bool, error) {
	ss.endMu.Lock()
	defer ss.endMu.Unlock()
	first := ss.condemn(keep, onlyIdle)
	switch {
	case !first && onlyIdle:
		return false, nil
	case first && keep && ss.workspace == job.Overlay:
		if err := ss.secure(); err != nil {
			ss.reprieve()
			return false, err
		}
	}
	ss.jail.drop()
	<-ss.jail.gone
	return ss.kept, ss.err
}

// condemn lets no more jobs begin, and says what becomes of the layer; the first caller decides. It returns whether this was
// that. With onlyIdle, a session in which jobs run stays as it is.
func (ss *session) condemn(keep, onlyIdle bool) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.ending || onlyIdle && ss.jobs > 0 {
		return false
	}
	ss.ending, ss.keep = true, keep
	if ss.timer != nil {
		ss.timer.Stop()
		ss.timer = nil
	}
	return true
}

// reprieve takes back a condemn. The session ends when it is asked to again, or when it has been idle for its time.
func (ss *session) reprieve() {
	ss.mu.Lock()
	ss.ending, ss.unkept = false, true
	ss.mu.Unlock()
	ss.armIdleTimer()
}

// endWithClient ends the session with the connection that opened it, with all that was not asked to be kept. The connection
// may have asked for that in vain: then it is tried once more, and the session goes on if it cannot be.
func (ss *session) endWithClient() error {
	_, err := ss.end(ss.keptInVain())
	return err
}

// keptInVain says whether the session was to be ended with its changes kept, and that was not possible.
func (ss *session) keptInVain() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.unkept
}

// keptWithSupervisor says whether the session's changes are kept when the supervisor ends.
func (ss *session) keptWithSupervisor() bool {
	return ss.lasts() && !ss.imports() || ss.keptInVain()
}

// turn lets a job of the session run, unless what is applied might not be what was looked at: nothing is applied while another
// job may write to the layer, and no such job begins while it is applied. The caller must call done when the job has ended.
func (ss *session) turn(q *Request) (done func(), err error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	tool, readOnly := job.Tool(q.Tool) == job.ToolChanges, q.Flags&wire.FlagReadOnly != 0
	busy := &job.Refusal{Step: "changes", Errno: int(unix.EBUSY)}
	switch {
	case tool && readOnly:
		return func() {}, nil
	case ss.applying:
		busy.Message, busy.Hint = "the changes of the session are being applied", "try again when that has ended"
		return nil, busy
	case !tool:
		ss.writers++
		return func() {
			ss.mu.Lock()
			defer ss.mu.Unlock()
			ss.writers--
		}, nil
	case ss.writers > 0:
		busy.Message = fmt.Sprintf("%d jobs run in the session, which may change what is applied", ss.writers)
		busy.Hint = "wait for them to end, or end them (corral ps); then look at the changes again"
		return nil, busy
	}
	ss.applying = true
	return func() {
		ss.mu.Lock()
		defer ss.mu.Unlock()
		ss.applying = false
	}, nil
}

// authorizeInSession decides about a job in a session, and returns its jail, which the caller must leave. The session was
// served its repository when it was opened.
func (s *Supervisor) authorizeInSession(r *run, q *Request, limits job.Limits) (*jail, func(), error) {
	ss, err := s.sessionOf(r.peer, q.Session)
	if err != nil {
		return nil, nil, err
	}
	done, err := ss.turn(q)
	if err == nil && job.Tool(q.Tool) == job.ToolNone {
		if err = ss.jail.repo.stays(); err != nil {
			done()
		}
	}
	if err != nil {
		ss.leave()
		return nil, nil, err
	}
	leave := func() {
		done()
		ss.leave()
	}
	if err := ss.admits(r, q, limits); err != nil {
		leave()
		return nil, nil, err
	}
	return ss.jail, leave, nil
}

func (ss *session) admits(r *run, q *Request, limits job.Limits) error {
	if ss.workspace == job.ReadOnly && q.writes() {
		q.narrow() // or fits refuses it
	}
	if err := ss.fits(q); err != nil {
		return err
	}
	path := ss.jail.repo.path
	if !ss.imports() {
		floored, profile, err := ss.s.config.clampLimits(ss.jail.repo, q, limits)
		switch {
		case err != nil:
			return err
		case profile != "" && profile != ss.profile:
			return &job.Refusal{Step: "profile", Message: fmt.Sprintf("jobs in %q have profile %q, and the session has %q", path, profile, ss.profile)}
		}
		limits = floored
	}
	ss.s.setRepo(r, path)
	r.limits, r.protect = limits, ss.s.config.protection(ss.jail.repo, q)
	return ss.s.decide(r, q, ss.jail.repo, ss.profile)
}

// fits refuses a job that asks for another workspace, profile or tool than the session has.
func (ss *session) fits(q *Request) error {
	tool, overlay, readOnly := job.Tool(q.Tool), q.Flags&wire.FlagOverlay != 0, q.Flags&wire.FlagReadOnly != 0
	switch {
	case q.Profile != "" && q.Profile != ss.profile:
		return &job.Refusal{Step: "profile", Message: fmt.Sprintf("the session has profile %q, not %q", ss.profile, q.Profile)}
	case q.Repo != "" && q.Repo != ss.jail.repo.path:
		return sessionRefusal("the session is one of %q, not of %q", ss.jail.repo.path, q.Repo)
	case q.Flags&wire.FlagNoRepo != 0:
		return &job.Refusal{Step: "workspace", Message: "the jobs of a session see its repository: workspace none takes no session"}
	case strings.HasPrefix(q.Dir, "/") && !ss.root():
		return &job.Refusal{Step: "cwd", Message: "the working directory must be a path relative to the repository"}
	case tool == job.ToolUnpack != ss.imports() || tool == job.ToolChanges && (ss.workspace != job.Overlay || overlay):
		return sessionRefusal("tool %.40q does not work on this session", q.Tool)
	case tool == job.ToolChanges || tool == job.ToolUnpack:
		return nil
	case tool != job.ToolNone:
		return sessionRefusal("no tool %.40q", q.Tool)
	case readOnly:
		return nil
	case overlay != (ss.workspace == job.Overlay) || ss.workspace == job.ReadOnly:
		return &job.Refusal{Step: "workspace", Message: fmt.Sprintf("the session's workspace is %v", ss.workspace)}
	}
	return nil
}

// words is the session in the words of package job.
func (ss *session) words() job.Session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	w := job.Session{
		ID: ss.id, Name: ss.spec.Name, Repo: ss.spec.Repo, Image: ss.spec.Image, Workspace: ss.workspace, Root: ss.root(),
		UID: ss.peer.UID, Opened: ss.opened, Used: ss.used, Jobs: ss.jobs, Disk: ss.spec.Disk,
		Kept: ss.from != "" && ss.jobs == 0, // that it is still mounted is nobody's matter
	}
	if u, err := ss.layer.Usage(); err == nil {
		w.DiskUsed = u.Bytes - u.Free
	}
	return w
}

// sessionsOf lists the sessions of a client's user, and for root all: open ones and kept layers.
func (s *Supervisor) sessionsOf(peer Peer) []job.Session {
	s.mu.Lock()
	var open []*session
	busy := map[string]bool{}
	for _, ss := range s.sessions {
		busy[ss.id], busy[ss.from] = true, true // one that is being ended may have its name already
		if ss.of(peer) && isClosed(ss.jail.built) && ss.jail.failure == nil {
			open = append(open, ss)
		}
	}
	s.mu.Unlock()
	var list []job.Session
	for _, ss := range open {
		list = append(list, ss.words())
	}
	for _, k := range s.keptOf(peer) {
		if !busy[k.ID] {
			list = append(list, k.words())
		}
	}
	sort.Slice(list, func(i, k int) bool { return list[i].Opened.Before(list[k].Opened) })
	return list
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// closeSession ends a session of peer's, or removes a kept layer of its.
func (s *Supervisor) closeSession(peer Peer, id string, keep bool) (bool, error) {
	s.mu.Lock()
	ss := s.sessions[id]
	s.mu.Unlock()
	if ss == nil && !keep {
		return false, s.removeKept(peer, id)
	}
	if ss == nil || !ss.of(peer) || ss.stands() != nil {
		return false, noSession(id)
	}
	return ss.end(keep)
}
