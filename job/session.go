package job

import (
	"context"
	"fmt"
	"time"
)

// A SessionSpec describes a session to open: a jail of one client, whose jobs share a writable layer on disk. The
// layer has a quota and is removed with the session unless it is kept.
type SessionSpec struct {
	Repo    string // absolute path of the repository
	Name    string // for display, at most 64 bytes of [A-Za-z0-9._-]; "" means none
	Profile string // system call profile, as in a Spec
	// Workspace is the access of the session's jobs to the repository. With Overlay they write to the layer.
	Workspace Workspace
	// Root puts a whole writable root file system on the layer; without it, only the repository is on it.
	Root bool
	// Share puts the home directory and /tmp on the layer, shared by the session's jobs; without it, each job has its
	// own. The jobs share a loopback interface, too. Root implies both. A directory of these that contains the repository or a
	// toolchain is private to each job in any case.
	Share  bool
	Image  string        // name of the root file system to start from; "" is the host's system directories. Requires Root
	Import string        // the session fills the root file system of this name, which is mounted as its repository; root only
	Disk   int64         // bytes of the layer; 0 is the supervisor's default
	Inodes int64         // files of the layer; 0 is the supervisor's default
	Idle   time.Duration // the session ends after running no job for this long; 0 is the supervisor's default
	// Network is what the session's jobs may reach, see Spec.Network. Where the jobs share a network, it is that of all of them.
	Network string
	// Lasting sessions outlive the connection that opened them; the others end with it. Changes in an overlay are kept.
	Lasting bool
}

// Defaults of a session's layer and idle time, see SessionSpec.
const (
	DefaultLayerDisk   = 4 << 30
	DefaultLayerInodes = 500_000
	DefaultSessionIdle = 30 * time.Minute
)

// MaxKeptLayers is the maximum number of kept layers of one user. It bounds their number alone: what they have on the disk is counted
// as that of open sessions is.
const MaxKeptLayers = 256

// A Session is an open session, or the kept layer of one that has ended.
type Session struct {
	ID        string // 32 hex digits; a Spec and `corral changes` use it
	Name      string
	Repo      string
	Image     string
	Workspace Workspace
	Root      bool
	Kept      bool   // the session has ended and its layer was kept
	UID       uint32 // user that opened it
	// Opened is later than the time of every change made to the repository before the session was requested, and not
	// later than that of any change made while it is open.
	Opened   time.Time
	Used     time.Time // when its last job started or ended; for a kept layer, when it was kept
	Jobs     int       // number of running jobs
	Disk     int64     // size of the layer in bytes
	DiskUsed int64     // bytes in use, including the file system's own
}

// Sessions opens, closes and lists sessions. A client sees the sessions of its own user; root sees all.
type Sessions interface {
	// OpenSession opens a session. The error is a *Refusal if it is not allowed or there is no capacity.
	OpenSession(ctx context.Context, spec SessionSpec) (Session, error)
	// CloseSession ends a session and every job in it, or removes a kept layer. With keep, the layer of a session
	// with workspace Overlay is kept if something in the repository was changed; kept reports whether it was. If
	// there is no such session or layer, the error is a *Refusal at step "session".
	CloseSession(ctx context.Context, id string, keep bool) (kept bool, err error)
	// ListSessions lists open sessions and kept layers, oldest first.
	ListSessions(ctx context.Context) ([]Session, error)
}

// FindSession returns the session or kept layer of s that has this id, or else the only one that has this name. With
// openFirst, a name refers to an open session even if kept layers have it, too.
func FindSession(ctx context.Context, s Sessions, idOrName string, openFirst bool) (Session, error) {
	list, err := s.ListSessions(ctx)
	if err != nil {
		return Session{}, err
	}
	var open, kept []Session
	for _, one := range list {
		switch {
		case one.ID == idOrName:
			return one, nil
		case one.Name != idOrName:
		case one.Kept:
			kept = append(kept, one)
		default:
			open = append(open, one)
		}
	}
	found := append(open, kept...)
	if openFirst && len(open) > 0 {
		found = open
	}
	switch len(found) {
	case 0:
		return Session{}, fmt.Errorf("there is no session %.200q\nhint: it may have ended without changes: corral session list", idOrName)
	case 1:
		return found[0], nil
	}
	return Session{}, fmt.Errorf("%d sessions are called %.200q\nhint: use the id: corral session list", len(found), idOrName)
}

// A Tool is a program of corral's own that runs as a job in place of a program from the job's jail.
type Tool string

// The tools. Args of a Spec are the tool's arguments, starting with its name.
const (
	// ToolNone runs the program that Args name.
	ToolNone Tool = ""
	// ToolChanges compares the layer of a session (mounted at LayerDir) with the repository below it, or applies it. Both
	// are mounted according to the Spec's Workspace, which must not be Overlay.
	ToolChanges Tool = "changes"
	// ToolUnpack unpacks an archive from standard input into the root file system of a session with Import. That root
	// is mounted as the repository.
	ToolUnpack Tool = "unpack"
	// ToolStarlark interprets a Starlark program, one of the Spec's Files. It runs without a session, with Workspace
	// NoRepo and without a terminal, and always with the strictest profile, whatever is set for the repository.
	ToolStarlark Tool = "starlark"
	// ToolEdit changes one file of the repository, as standard input describes (see package edit). It sees the repository
	// as any job with its Spec does, and has the rights of one. It has no terminal, and no root file system of its own.
	ToolEdit Tool = "edit"
	// ToolFiles reads or changes one file or directory, in the same way.
	ToolFiles Tool = "files"
)

// InRepository reports whether the program works in the repository as the jobs of its session see it.
func (t Tool) InRepository() bool { return t == ToolNone || t.OnFiles() }

// OnFiles reports whether the program is one of those that work on files of the repository as a job does.
func (t Tool) OnFiles() bool { return t == ToolEdit || t == ToolFiles }

// LayerDir is where ToolChanges finds the session's overlay: the directories upper and base.
const LayerDir = "/var/layer"
