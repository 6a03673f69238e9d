package sessions

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"corral/internal/fault"
	"corral/internal/lazyregexp"
	"corral/isolate/admit"
	"corral/isolate/cell"
	"corral/isolate/host"
	"corral/isolate/layer"
	"corral/isolate/wire"
	"corral/job"
)

// A Session is a jail of one client with a layer of its own: what its jobs write lasts until the session ends. Its
// jobs run concurrently under one user id.
type Session struct {
	m         *Manager
	id        string
	spec      wire.Open
	peer      host.Peer
	workspace job.Workspace
	profile   string
	opened    time.Time
	idle      time.Duration
	from      string // id of the kept layer that it resumes, or ""
	layer     *layer.Layer
	jail      *cell.Jail // set before the jail is built
	// placeholder is that of the secrets that requests of its jobs carry.
	placeholder string

	endMu sync.Mutex // serializes ends of the session; locked before layerMu

	layerMu sync.Mutex // locked before mu
	closed  bool       // guarded by layerMu: the layer is closed

	mu       fault.Mutex
	used     time.Time   // guarded by mu
	jobs     int         // guarded by mu
	writers  int         // guarded by mu: running jobs that may write to the layer
	applying bool        // guarded by mu: a running job applies the layer to the repository
	timer    *time.Timer // guarded by mu: ends the session when idle; nil if not armed
	ending   bool        // guarded by mu: no new jobs start
	retired  bool        // guarded by mu: likewise, and it is not over yet
	keep     bool        // guarded by mu: keep the layer if it has changes
	kept     bool        // the layer was kept; set before jail.gone is closed
	err      error       // why it was not kept; set before jail.gone is closed
}

func (ss *Session) root() bool   { return ss.spec.Flags&wire.OpenRoot != 0 }
func (ss *Session) shares() bool { return ss.spec.Flags&wire.OpenShare != 0 }

// Lasts reports whether the layer is kept when the session ends.
func (ss *Session) Lasts() bool   { return ss.spec.Flags&wire.OpenLasting != 0 }
func (ss *Session) imports() bool { return ss.spec.Import != "" }

// ID returns the session's id.
func (ss *Session) ID() string { return ss.id }

// Peer returns the client that opened the session.
func (ss *Session) Peer() host.Peer { return ss.peer }

// Network returns what the session's jobs asked to reach when it was opened, see job.SessionSpec.Network.
func (ss *Session) Network() string { return ss.spec.Network }

// Placeholder returns the placeholder of the secrets that requests of its jobs carry.
func (ss *Session) Placeholder() string { return ss.placeholder }

// NewPlaceholder returns the placeholder of the secrets of a job or session, which no other has and nobody can guess.
func NewPlaceholder() string { return "corral-" + rand.Text() }

// Jail returns the session's jail.
func (ss *Session) Jail() *cell.Jail { return ss.jail }

// Profile returns the system call profile of the session's jobs.
func (ss *Session) Profile() string { return ss.profile }

// IsGone reports whether the session has ended and everything of it has been removed.
func (ss *Session) IsGone() bool { return ss.jail.IsGone() }

var labelPattern = lazyregexp.New(`^[A-Za-z0-9._-]{0,64}$`)

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

// check refuses requests for reasons that do not depend on the repository, and fills in defaults.
func (ss *Session) check() error {
	spec := &ss.spec
	switch {
	case !labelPattern().MatchString(spec.Name):
		return sessionRefusal("invalid session name %q: use letters, digits, dots, dashes and underscores, at most %d characters", spec.Name, wire.MaxLabel)
	case admit.CheckProfile(spec.Profile) != nil:
		return admit.CheckProfile(spec.Profile)
	case ss.imports() && job.CheckImageName(spec.Import) != nil:
		return sessionRefusal("invalid root file system name %q: use lower-case letters, digits, dots, dashes and underscores, at most %d characters", spec.Import, wire.MaxLabel)
	case ss.imports() && !ss.peer.MayManage():
		return onlyRoot("import a root file system")
	case ss.imports() && ss.m.images.has(spec.Import):
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
	l := ss.m.bounds()
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

// OpenLayer creates or reopens the session's layer, and mounts it at path.
func (ss *Session) OpenLayer(path string) (l *layer.Layer, err error) {
	m := ss.m
	who := layer.Client{UID: ss.peer.Payer(), Kept: m.diskKept(ss.peer.Payer())}
	switch {
	case ss.from != "":
		l, err = m.layers.Reopen(ss.from+layerSuffix, path, who, ss.spec.Inodes)
	case ss.imports():
		l, err = m.images.store.Make(path, who, ss.spec.Disk, ss.spec.Inodes)
	default:
		l, err = m.layers.Make(path, who, ss.spec.Disk, ss.spec.Inodes)
	}
	if err != nil {
		return nil, refuseLayer(err)
	}
	ss.layer = l
	return l, nil
}

// CloseLayer unmounts the session's layer, and keeps or removes it.
func (ss *Session) CloseLayer() { ss.kept, ss.err = ss.closeLayer() }

// UseImage returns the mount point of the root file system with which the session starts. The caller must call leave.
func (ss *Session) UseImage() (path string, leave func(), err error) {
	image, err := ss.m.images.use(ss.spec.Image)
	if err != nil {
		return "", nil, err
	}
	return image.layer.Path(), image.leave, nil
}

// Forget removes the ended session from the open ones.
func (ss *Session) Forget() {
	m := ss.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all[ss.id] == ss {
		delete(m.all, ss.id)
	}
}

// of reports whether peer may use the session: it is the owner, or root at a daemon's socket.
func (ss *Session) of(peer host.Peer) bool {
	return peer.UID == ss.peer.UID && peer.Embedded == ss.peer.Embedded || peer.UID == 0 && !peer.Embedded
}

// Info returns the session's description for clients.
func (ss *Session) Info() job.Session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	w := job.Session{
		ID: ss.id, Name: ss.spec.Name, Repo: ss.spec.Repo, Image: ss.spec.Image, Workspace: ss.workspace, Root: ss.root(),
		UID: ss.peer.UID, Opened: ss.opened, Used: ss.used, Jobs: ss.jobs, Disk: ss.spec.Disk,
		Kept: ss.from != "" && ss.jobs == 0, // that it is still mounted does not matter to the client
	}
	if u, err := ss.layer.Usage(); err == nil {
		w.DiskUsed = u.Used
	}
	return w
}
