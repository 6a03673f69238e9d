package job

import (
	"context"
	"time"
)

// A SessionSpec is a session to open: a jail of one client, whose jobs share a writable layer on disk. The layer has a
// quota and is gone with the session, unless it is kept.
type SessionSpec struct {
	Repo    string // absolute path of the repository
	Name    string // for people, at most 64 bytes of [A-Za-z0-9._-]; "" is none
	Profile string // of system calls, as in a Spec
	// Workspace is what the session's jobs may do to the repository. Overlay: they write to the layer.
	Workspace Workspace
	// Root gives the session a whole root file system that it may write to, on the layer; else only the repository is.
	Root bool
	// Share has the session's jobs share the home directory and /tmp, on the layer, where each has its own else. With Root they
	// do in any case. One in which the repository or a toolchain lies is each job's own all the same.
	Share  bool
	Image  string        // the root file system to begin with, by its name; "" is the host's system directories. With Root only
	Import string        // the session is there to fill the root file system of this name, which is its repository; root only
	Disk   int64         // bytes of the layer; 0 is the supervisor's default
	Inodes int64         // files of the layer; 0 is the supervisor's default
	Idle   time.Duration // the session ends when it ran no job for so long; 0 is the supervisor's default
	// Lasting sessions outlive the connection that opened them; others end with it.
	Lasting bool
}

// Bounds of a session's layer, see SessionSpec.
const (
	DefaultLayerDisk   = 4 << 30
	DefaultLayerInodes = 500_000
	DefaultSessionIdle = 30 * time.Minute
)

// A Session is an open session, or a layer that one left.
type Session struct {
	ID        string // 32 hex digits; it is what a Spec and `corral changes` name it by
	Name      string
	Repo      string
	Image     string
	Workspace Workspace
	Root      bool
	Kept      bool   // it has ended and its layer was kept
	UID       uint32 // of who opened it
	// Opened is such that what was changed in the repository before it was asked for has an earlier time, and what is
	// changed while it is open has not.
	Opened   time.Time
	Used     time.Time // when its last job began or ended; of a kept one, when it was kept
	Jobs     int       // that run now
	Disk     int64     // bytes of the layer
	DiskUsed int64     // bytes of it that are in use, the file system's own included
}

// Sessions opens, closes and lists sessions. A client sees its own user's; root sees all.
type Sessions interface {
	// OpenSession opens a session. The error is a *Refusal when it may not be, or there is no room.
	OpenSession(ctx context.Context, spec SessionSpec) (Session, error)
	// CloseSession ends a session and every job in it, or removes a kept layer. With keep, the layer of a session whose
	// workspace is Overlay stays, if something in the repository was changed; it says whether it did. Closing what is not there is a
	// *Refusal at step "session".
	CloseSession(ctx context.Context, id string, keep bool) (kept bool, err error)
	// ListSessions lists open sessions and kept layers, oldest first.
	ListSessions(ctx context.Context) ([]Session, error)
}

// A Tool is a program of corral's own that runs as a job, in place of one of the job's jail.
type Tool string

// The tools. Args of a Spec are its arguments, the tool's name first.
const (
	// ToolNone runs the program that Args name.
	ToolNone Tool = ""
	// ToolChanges looks at the layer of a session (mounted read-only at LayerDir) and at the repository below it, and applies it. The
	// repository is mounted as the Spec's Workspace says, which must not be Overlay.
	ToolChanges Tool = "changes"
	// ToolUnpack fills the root file system of a session with Import, from an archive on standard input. The repository is
	// its root.
	ToolUnpack Tool = "unpack"
	// ToolStarlark interprets a program in Starlark, one of the Spec's Files. It works without a session, with Workspace NoRepo
	// and without a terminal, and has the strictest profile whatever holds in the repository.
	ToolStarlark Tool = "starlark"
)

// LayerDir is where ToolChanges finds the upper directory of the session's overlay.
const LayerDir = "/var/layer"
