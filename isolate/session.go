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

	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/isolate/layer"
	"corral/isolate/wire"
	"corral/job"
	"corral/seccomp"
)

// A session is a jail of one client with a layer of its own: what its jobs write lasts until the session ends. Its
// jobs run concurrently under one user id.
type session struct {
	s         *Supervisor
	id        string
	spec      wire.Open
	peer      host.Peer
	workspace job.Workspace
	profile   string
	opened    time.Time
	idle      time.Duration
	from      string // id of the kept layer that it resumes, or ""
	layer     *layer.Layer
	jail      *jail // set before the jail is built

	endMu sync.Mutex // serializes ends of the session; locked before layerMu

	layerMu sync.Mutex // locked before mu
	closed  bool       // guarded by layerMu: the layer is closed

	mu          sync.Mutex
	used        time.Time   // guarded by mu
	jobs        int         // guarded by mu
	writers     int         // guarded by mu: running jobs that may write to the layer
	applying    bool        // guarded by mu: a running job applies the layer to the repository
	timer       *time.Timer // guarded by mu: ends the session when idle; nil if not armed
	ending      bool        // guarded by mu: no new jobs start
	keep        bool        // guarded by mu: keep the layer if it has changes
	keepRefused bool        // guarded by mu: an end was refused because the layer could not be kept
	kept        bool        // the layer was kept; set before jail.gone is closed
	err         error       // why it was not kept; set before jail.gone is closed
}

func (ss *session) root() bool    { return ss.spec.Flags&wire.OpenRoot != 0 }
func (ss *session) shares() bool  { return ss.spec.Flags&wire.OpenShare != 0 }
func (ss *session) lasts() bool   { return ss.spec.Flags&wire.OpenLasting != 0 }
func (ss *session) imports() bool { return ss.spec.Import != "" }

var labelPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{0,64}$`)

func sessionRefusal(format string, a ...any) *job.Refusal {
	return &job.Refusal{Step: "session", Message: fmt.Sprintf(format, a...)}
}

// noSession returns the same error for a session that does not exist and for one of another user.
func noSession(id string) error {
	r := sessionRefusal("no session %.40q", id)
	r.Hint = "it has ended, or it is not yours"
	return r
}

func sessionID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // crypto/rand.Read never fails
	return hex.EncodeToString(b)
}

// open opens a session for a client. Only clients with the same user id, and root, can run jobs in it.
func (s *Supervisor) open(peer host.Peer, spec wire.Open, dir, common *os.File) (*session, error) {
	if !s.begin() {
		return nil, host.ErrEnding
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
	r, err := ss.pinRepo(dir, common)
	if err != nil {
		return nil, err
	}
	if ss, err = s.start(ss, r); err != nil {
		return ss, err
	}
	ss.stamp()
	return ss, nil
}

// checkOpen reports why a client cannot have a session, as far as that depends on the request and the repository. It
// creates no state.
func (s *Supervisor) checkOpen(peer host.Peer, spec wire.Open, dir, common *os.File) error {
	if !s.begin() {
		return host.ErrEnding
	}
	defer s.work.Done()
	ss := &session{s: s, spec: spec, peer: peer}
	if err := ss.check(); err != nil {
		return err
	}
	r, err := ss.pinRepo(dir, common)
	if err != nil {
		return err
	}
	defer r.Close()
	if ss.imports() {
		return nil
	}
	if err := s.served.Inspect(peer.Payer(), r); err != nil {
		return err
	}
	// Whether the file system supports id maps is known only by trying.
	m, err := s.userns.IDMap(r.UID, r.GID, r.UID, 1)
	if err != nil {
		return err
	}
	defer m.Close()
	mount, err := r.Clone(m, true)
	if err != nil {
		return err
	}
	return mount.Close()
}

// check refuses requests for reasons that do not depend on the repository, and fills in defaults.
func (ss *session) check() error {
	spec := &ss.spec
	switch {
	case !labelPattern.MatchString(spec.Name):
		return sessionRefusal("invalid session name %q: use letters, digits, dots, dashes and underscores, at most %d characters", spec.Name, wire.MaxLabel)
	case admit.CheckProfile(spec.Profile) != nil:
		return admit.CheckProfile(spec.Profile)
	case ss.imports() && job.CheckImageName(spec.Import) != nil:
		return sessionRefusal("invalid root file system name %q: use lower-case letters, digits, dots, dashes and underscores, at most %d characters", spec.Import, wire.MaxLabel)
	case ss.imports() && !ss.peer.MayManage():
		return onlyRoot("import a root file system")
	case ss.imports() && ss.s.images.has(spec.Import):
		r := sessionRefusal("root file system %q already exists", spec.Import)
		r.Hint = "choose another name, or remove it: corral rootfs remove " + spec.Import
		return r
	case spec.Image != "" && (job.CheckImageName(spec.Image) != nil || !ss.root()):
		return sessionRefusal("root file system %q: the name is invalid, or the session does not request a root of its own", spec.Image)
	case spec.Disk < 0 || spec.Inodes < 0 || spec.Idle < 0:
		return sessionRefusal("disk, inodes and idle time of a session must not be negative")
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

// pinRepo pins the repository and applies the operator's configuration for it to the session.
func (ss *session) pinRepo(dir, common *os.File) (*admit.Repo, error) {
	if ss.imports() {
		return &admit.Repo{Path: importDir}, nil
	}
	r, err := ss.s.served.Serves(ss.peer, ss.spec.Repo, dir)
	if err != nil {
		return nil, err
	}
	q := &admit.Request{Run: wire.Run{Flags: ss.spec.Flags & (wire.FlagReadOnly | wire.FlagOverlay), Profile: ss.spec.Profile}}
	if !ss.root() { // a root of its own has no mount point for it
		r.Common = ss.s.served.Common(ss.peer, ss.spec.Common, common, r)
	}
	if _, ss.profile, err = ss.s.served.Clamp(r, q, ss.s.config.Defaults); err != nil {
		r.Close()
		return nil, err
	}
	if q.Narrowed {
		ss.spec.Flags |= wire.FlagReadOnly
		ss.workspace = job.ReadOnly
	}
	ss.spec.Repo = r.Path
	return r, nil
}

// start builds the session's jail, including the layer, and returns the session once it is built. If a session with
// the same id, which resumes the same kept layer, is open, start returns that one instead. It takes over r.
func (s *Supervisor) start(ss *session, r *admit.Repo) (*session, error) {
	if ss.profile == "" {
		ss.profile = seccomp.Profiles()[0]
	}
	t := &tenant{
		tenantLayer: ss, ID: ss.id, Workspace: ss.workspace, Root: ss.root(), Share: ss.shares(), Import: ss.imports(),
		Image: ss.spec.Image, Resumed: ss.from != "",
	}
	s.mu.Lock()
	if other := s.sessions[ss.id]; other != nil {
		s.mu.Unlock()
		r.Close()
		return other, other.jail.awaitBuilt()
	}
	err := s.cells.startFor(t, ss.peer, r, ss.profile, func(j *jail) error {
		if ss.from == "" {
			if err := s.nameTaken(ss); err != nil {
				return err
			}
		}
		ss.jail, s.sessions[ss.id] = j, ss
		return nil
	})
	s.mu.Unlock()
	if err != nil {
		r.Close()
		return nil, err
	}
	if err := ss.jail.awaitBuilt(); err != nil {
		return nil, err
	}
	ss.armIdleTimer()
	return ss, nil
}

// OpenLayer creates or reopens the session's layer, and mounts it at path.
func (ss *session) OpenLayer(path string) (l *layer.Layer, err error) {
	s := ss.s
	who := layer.Client{UID: ss.peer.Payer(), Kept: s.diskKept(ss.peer.Payer())}
	switch {
	case ss.from != "":
		l, err = s.layers.Reopen(ss.from+layerSuffix, path, who)
	case ss.imports():
		l, err = s.images.store.Make(path, who, ss.spec.Disk, ss.spec.Inodes)
	default:
		l, err = s.layers.Make(path, who, ss.spec.Disk, ss.spec.Inodes)
	}
	if err != nil {
		return nil, refuseLayer(err)
	}
	ss.layer = l
	return l, nil
}

// CloseLayer unmounts the session's layer, and keeps or removes it.
func (ss *session) CloseLayer() { ss.kept, ss.err = ss.closeLayer() }

// UseImage returns the mount point of the root file system with which the session starts. The caller must call leave.
func (ss *session) UseImage() (path string, leave func(), err error) {
	image, err := ss.s.images.use(ss.spec.Image)
	if err != nil {
		return "", nil, err
	}
	return image.layer.Path(), image.leave, nil
}

// Forget removes the ended session from the open ones.
func (ss *session) Forget() {
	s := ss.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[ss.id] == ss {
		delete(s.sessions, ss.id)
	}
}

// nameTaken refuses a name that another open session of the same user has, because commands accept names in place of
// ids. The caller holds s.mu.
func (s *Supervisor) nameTaken(ss *session) error {
	if ss.spec.Name == "" {
		return nil
	}
	for _, other := range s.sessions {
		if other.from == "" && other.spec.Name == ss.spec.Name && other.peer.UID == ss.peer.UID && other.peer.Embedded == ss.peer.Embedded {
			r := sessionRefusal("you already have a session named %q: %s", ss.spec.Name, other.id)
			r.Hint = "choose another name, or end it: corral session close " + ss.spec.Name
			return r
		}
	}
	return nil
}

// sessionOf returns a session that peer may use: an open one, or a new one that resumes a kept layer. The caller must
// call leave.
func (s *Supervisor) sessionOf(peer host.Peer, id string) (*session, error) {
	s.mu.Lock()
	ss := s.sessions[id]
	s.mu.Unlock()
	if ss == nil {
		return s.resume(peer, id)
	}
	if !ss.of(peer) || ss.jail.awaitBuilt() != nil || !ss.use() {
		return nil, noSession(id)
	}
	return ss, nil
}

// of reports whether peer may use the session: it is the owner, or root at a daemon's socket.
func (ss *session) of(peer host.Peer) bool {
	return peer.UID == ss.peer.UID && peer.Embedded == ss.peer.Embedded || peer.UID == 0 && !peer.Embedded
}

// use counts one more job. It returns false if the session is ending.
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

// armIdleTimer starts the idle timer of a session without jobs.
func (ss *session) armIdleTimer() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.jobs > 0 || ss.ending || ss.timer != nil {
		return
	}
	ss.timer = time.AfterFunc(ss.idle, ss.expireIfIdle)
}

// expireIfIdle ends a session that has been idle for its timeout. Unreviewed changes are kept.
func (ss *session) expireIfIdle() {
	if !ss.s.begin() {
		return
	}
	defer ss.s.work.Done()
	// A half-imported root file system is not kept.
	_, err := ss.endIf(!ss.imports(), true)
	ss.logEnd(err)
}

// logEnd logs why a session did not end properly, which no client is told. Refusals were logged before.
func (ss *session) logEnd(err error) {
	if err != nil && !errors.As(err, new(*job.Refusal)) {
		ss.s.config.Log.Error("session", "session", ss.id, "error", err)
	}
}

// end ends the session and every job in it, and waits for that. With keep, an overlay with changes or an imported
// root file system is kept; end returns whether it was. If an overlay cannot be kept the session continues, and the
// error is a *job.Refusal.
func (ss *session) end(keep bool) (bool, error) { return ss.endIf(keep, false) }

// endIf is end, except that with onlyIdle it does nothing to a session with running jobs.
func (ss *session) endIf(keep, onlyIdle bool) (bool, error) {
	ss.endMu.Lock()
	defer ss.endMu.Unlock()
	first := ss.beginEnd(keep, onlyIdle)
	switch {
	case !first && onlyIdle:
		return false, nil
	case first && keep && ss.workspace == job.Overlay:
		if err := ss.ensureKeepable(); err != nil {
			ss.cancelEnd()
			return false, err
		}
	}
	ss.jail.drop()
	<-ss.jail.gone
	return ss.kept, ss.err
}

// beginEnd keeps new jobs from starting and decides whether the layer is kept. The first caller decides; beginEnd
// returns whether this was the first. With onlyIdle, it does nothing to a session with running jobs and returns
// false.
func (ss *session) beginEnd(keep, onlyIdle bool) bool {
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

// cancelEnd undoes beginEnd. The session ends at the next request, or when it has been idle for its timeout.
func (ss *session) cancelEnd() {
	ss.mu.Lock()
	ss.ending, ss.keepRefused = false, true
	ss.mu.Unlock()
	ss.armIdleTimer()
}

// endWithClient ends the session together with the connection that opened it. Changes are discarded, unless the
// client asked to keep them and that failed: then keeping is tried once more, and if it fails again, the session
// continues.
func (ss *session) endWithClient() error {
	_, err := ss.end(ss.keepFailed())
	return err
}

// endSessions keeps new jobs from starting in the open sessions, and decides what is kept of them, because the
// supervisor ends.
func (s *Supervisor) endSessions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ss := range s.sessions {
		ss.beginEnd(ss.keptWithSupervisor(), false)
	}
}

// keepFailed reports whether an end of the session was refused because its changes could not be kept.
func (ss *session) keepFailed() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.keepRefused
}

// keptWithSupervisor reports whether the session's changes are kept when the supervisor ends.
func (ss *session) keptWithSupervisor() bool {
	return ss.lasts() && !ss.imports() || ss.keepFailed()
}

// startTurn lets a job start, unless what is applied could then differ from what was reviewed: changes are not
// applied while another job may write to the layer, and no such job starts while they are being applied. The caller
// must call done when the job has ended.
func (ss *session) startTurn(q *admit.Request) (done func(), err error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	tool, readOnly := job.Tool(q.Tool) == job.ToolChanges, q.Flags&wire.FlagReadOnly != 0
	busy := &job.Refusal{Step: "changes", Errno: int(unix.EBUSY)}
	switch {
	case tool && readOnly:
		return func() {}, nil
	case ss.applying:
		busy.Message, busy.Hint = "the changes of the session are being applied", "try again when that is done"
		return nil, busy
	case !tool:
		ss.writers++
		return func() {
			ss.mu.Lock()
			defer ss.mu.Unlock()
			ss.writers--
		}, nil
	case ss.writers > 0:
		busy.Message = fmt.Sprintf("%d jobs in the session may still change what would be applied", ss.writers)
		busy.Hint = "wait for them to end, or end them (corral ps); then review the changes again"
		return nil, busy
	}
	ss.applying = true
	return func() {
		ss.mu.Lock()
		defer ss.mu.Unlock()
		ss.applying = false
	}, nil
}

// authorizeInSession decides about a job in a session, and returns its jail. The caller must call the returned leave.
// That the client may use the repository was decided when the session was opened.
func (s *Supervisor) authorizeInSession(r *run, q *admit.Request, limits job.Limits) (*jail, func(), error) {
	ss, err := s.sessionOf(r.peer, q.Session)
	if err != nil {
		return nil, nil, err
	}
	done, err := ss.startTurn(q)
	if err == nil && job.Tool(q.Tool) == job.ToolNone {
		if err = ss.jail.repo.CheckUnmoved(); err != nil {
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
	if err := ss.authorizeJob(r, q, limits); err != nil {
		leave()
		return nil, nil, err
	}
	return ss.jail, leave, nil
}

func (ss *session) authorizeJob(r *run, q *admit.Request, limits job.Limits) error {
	if ss.workspace == job.ReadOnly && q.Writes() {
		q.Narrow() // otherwise checkRequest refuses it
	}
	if err := ss.checkRequest(q); err != nil {
		return err
	}
	path := ss.jail.repo.Path
	if !ss.imports() {
		clamped, profile, err := ss.s.served.Clamp(ss.jail.repo, q, limits)
		switch {
		case err != nil:
			return err
		case profile != "" && profile != ss.profile:
			return &job.Refusal{Step: "profile", Message: fmt.Sprintf("jobs in %q must use profile %q, but the session has %q", path, profile, ss.profile)}
		}
		limits = clamped
	}
	ss.s.setRepo(r, path)
	r.limits, r.protect = limits, ss.s.served.Protection(ss.jail.repo, q)
	return ss.s.decide(r, q, ss.jail.repo, ss.profile)
}

// checkRequest refuses a job that requests another workspace, profile or tool than the session has.
func (ss *session) checkRequest(q *admit.Request) error {
	tool, overlay, readOnly := job.Tool(q.Tool), q.Flags&wire.FlagOverlay != 0, q.Flags&wire.FlagReadOnly != 0
	switch {
	case q.Profile != "" && q.Profile != ss.profile:
		return &job.Refusal{Step: "profile", Message: fmt.Sprintf("the session has profile %q, not %q", ss.profile, q.Profile)}
	case q.Repo != "" && q.Repo != ss.jail.repo.Path:
		return sessionRefusal("the session's repository is %q, not %q", ss.jail.repo.Path, q.Repo)
	case q.Flags&wire.FlagNoRepo != 0:
		return &job.Refusal{Step: "workspace", Message: "the jobs of a session see its repository: workspace none cannot be used in a session"}
	case strings.HasPrefix(q.Dir, "/") && !ss.root():
		return &job.Refusal{Step: "cwd", Message: "the working directory must be a path relative to the repository"}
	case tool == job.ToolUnpack != ss.imports() || tool == job.ToolChanges && (ss.workspace != job.Overlay || overlay):
		return sessionRefusal("tool %.40q cannot be used in this session", q.Tool)
	case tool == job.ToolChanges || tool == job.ToolUnpack:
		return nil
	case tool != job.ToolNone:
		return sessionRefusal("unknown tool %.40q", q.Tool)
	case readOnly:
		return nil
	case overlay != (ss.workspace == job.Overlay) || ss.workspace == job.ReadOnly:
		return &job.Refusal{Step: "workspace", Message: fmt.Sprintf("the session's workspace is %v", ss.workspace)}
	}
	return nil
}

// info returns the session's description for clients.
func (ss *session) info() job.Session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	w := job.Session{
		ID: ss.id, Name: ss.spec.Name, Repo: ss.spec.Repo, Image: ss.spec.Image, Workspace: ss.workspace, Root: ss.root(),
		UID: ss.peer.UID, Opened: ss.opened, Used: ss.used, Jobs: ss.jobs, Disk: ss.spec.Disk,
		Kept: ss.from != "" && ss.jobs == 0, // that it is still mounted does not matter to the client
	}
	if u, err := ss.layer.Usage(); err == nil {
		w.DiskUsed = u.Bytes - u.Free
	}
	return w
}

// sessionsOf lists the sessions of a client's user, or all for root: open ones and kept layers.
func (s *Supervisor) sessionsOf(peer host.Peer) []job.Session {
	s.mu.Lock()
	var open []*session
	busy := map[string]bool{}
	for _, ss := range s.sessions {
		busy[ss.id], busy[ss.from] = true, true // a session that is being ended may have its name on the layer already
		if ss.of(peer) && isClosed(ss.jail.built) && ss.jail.failure == nil {
			open = append(open, ss)
		}
	}
	s.mu.Unlock()
	var list []job.Session
	for _, ss := range open {
		list = append(list, ss.info())
	}
	for _, k := range s.keptOf(peer) {
		if !busy[k.ID] {
			list = append(list, k.info())
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

// closeSession ends a session of peer's, or removes a kept layer of peer's.
func (s *Supervisor) closeSession(peer host.Peer, id string, keep bool) (bool, error) {
	s.mu.Lock()
	ss := s.sessions[id]
	s.mu.Unlock()
	if ss == nil && !keep {
		return false, s.removeKept(peer, id)
	}
	if ss == nil || !ss.of(peer) || ss.jail.awaitBuilt() != nil {
		return false, noSession(id)
	}
	return ss.end(keep)
}
