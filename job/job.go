// Package job defines the terms of corral (the client's request, the decision on it, the job and its outcome) and the
// engine that takes a request from one to the next.
//
// A job is one run of a program in a jail. A Spec says what to run and within which Limits; a Result says what
// happened. The outcome of a job is data (a Status, an exit code, the limit it reached): a Go error means that corral
// itself failed, or that the job was refused before it started (*Refusal).
//
// The package imports the standard library only and contains no isolation mechanism: other packages implement its
// interfaces.
package job

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A Workspace says what a job may do to the repository it runs in.
type Workspace uint8

const (
	// Direct writes to the repository itself; files belong to the repository's owner. It is the zero value.
	Direct Workspace = iota
	// ReadOnly refuses all writes with EROFS.
	ReadOnly
	// Overlay writes to the layer of the job's session; the repository stays as it is.
	Overlay
	// NoRepo leaves the repository's own path empty, whatever the operator shows of the directories above it. A
	// worktree's git directory is not mounted for the job either, but if it lies in a directory that the operator
	// shows read-only to every job, the job sees it there. The working directory is NoRepoDir; there is no session.
	NoRepo
)

// NoRepoDir is the working directory of a job with Workspace NoRepo.
const NoRepoDir = "/tmp"

// String returns the word used on command lines and in the configuration.
func (w Workspace) String() string {
	switch w {
	case ReadOnly:
		return "readonly"
	case Overlay:
		return "overlay"
	case NoRepo:
		return "none"
	}
	return "direct"
}

// ParseWorkspace parses a word returned by String. It does not accept the word of NoRepo: a setting of a repository
// cannot be that there is none.
func ParseWorkspace(s string) (Workspace, error) {
	switch s {
	case "direct", "":
		return Direct, nil
	case "readonly":
		return ReadOnly, nil
	case "overlay":
		return Overlay, nil
	}
	return Direct, errors.New("must be direct, overlay or readonly")
}

// Size is the size of a terminal in characters. The zero value means no terminal.
type Size struct{ Rows, Cols uint16 }

// Home is the home directory of jobs: rootfs.HomeDir, for those that know no trees of files.
const Home = "/home/job"

// A Spec describes a job to run.
type Spec struct {
	Repo string   // absolute path of the repository
	Dir  string   // working directory relative to Repo; "" is Repo, or NoRepoDir
	Args []string // the program and its arguments; a program without a slash is looked up in PATH of Env
	Env  []string // the environment, NAME=value
	// Usual adds to Env, unless it has them, variables with which package managers report at once that the job has no network. Without
	// it, Env is the whole environment. A policy sets more of them in Env.
	Usual     bool
	Workspace Workspace
	// ReadOnly refuses all writes to the repository, whatever Workspace says: the job sees it as the jobs do that may write.
	ReadOnly bool
	// Bounds are of the paths of the repository, where the job may do less than elsewhere.
	Bounds Bounds
	// Session is the id of an open session, or of a kept layer, that the job runs in; "" means none. Workspace
	// Overlay requires one. Repo and Profile must equal the session's, or be "".
	Session string
	// Protect makes sensitive paths read-only, with Workspace Direct. The operator may have set a stronger protection
	// for the repository.
	Protect  Protection
	Tool     Tool   // a program of corral's own that runs in place of Args[0]; "" means none
	Profile  string // of system calls: "default" or "strict"; "" is default
	Limits   Limits
	Terminal Size // non-zero: the job gets a terminal of its own, and Stdio is not used
	// Network is what the job asks for of the hosts that the operator allows for the repository: "" is all of them, NoNetwork none,
	// otherwise words as in policy/network: presets, and hosts with or without a port.
	Network string
	// SessionNetwork is the Network of the session that a front-end opens for the job: the policy's maximum for all jobs of the
	// session, which may be more.
	SessionNetwork string
	Files          []File
	Claim          Claim    // for the audit log
	Secrets        []string // values that the audit log must not have of Args and Files
}

// Stdio holds the standard streams of a job. Each file is the job's end of a pipe and is owned by the runner, which
// closes it once the job has it. A nil Stdin means /dev/null. A job with a terminal has no pipes.
type Stdio struct {
	Stdin, Stdout, Stderr *os.File
	// Terminal is called with the master of the job's terminal, whose ownership it receives, before Run returns:
	// once, or never if the job does not start. It must not block. If nil, the master is closed.
	Terminal func(master *os.File)
	// Started is called after the job was submitted and before Run returns: once per attempt to run it; the Signaler
	// of the last attempt is the valid one. It must not block. nil means that nobody signals the job.
	Started func(s Signaler)
}

// A Status says how a job ended.
type Status string

const (
	// Success is exit code 0.
	Success Status = "success"
	// Failure is another exit code, a signal, or a limit that ended the job.
	Failure Status = "failure"
	// Timeout is the end of a job at its deadline.
	Timeout Status = "timeout"
	// Cancelled is the end of a job at the request of its caller.
	Cancelled Status = "cancelled"
	// Lost means that the supervisor ended while the job ran.
	Lost Status = "lost"
	// Denied means that no job was started for the request.
	Denied Status = "denied"
)

// Names of limits in a Result.
const (
	LimitMemory     = "memory"
	LimitUserMemory = "user_memory" // of all jobs of the user together
	LimitPIDs       = "pids"
	LimitDisk       = "disk"
	LimitFiles      = "files"
	LimitLocks      = "locks"
	LimitTmp        = "tmp"    // a private directory was full when the job failed
	LimitOutput     = "output" // some of the job's output was not kept
)

// Usage is the resource usage of a job. -1 means that this kernel does not report the value.
type Usage struct {
	Wall       time.Duration // from the start of the program to the end of its last process
	CPU        time.Duration // user and system
	User       time.Duration
	System     time.Duration
	PeakMemory int64 // bytes, including page cache charged to the job
	PeakPIDs   int64
	ReadBytes  int64 // from block devices
	WriteBytes int64 // to block devices
}

// A Result is the outcome of a job.
type Result struct {
	ID       string
	Status   Status
	ExitCode int    // of the first process; -1 if a signal ended it
	Signal   int    // the signal that ended the first process, or 0; of a job that was ended, the one by which it was
	Limit    string // the limit that was reached: one of the Limit constants, or ""
	// UserMemory is the limit in bytes of the memory of all jobs of the user, for LimitUserMemory.
	UserMemory int64
	Usage      Usage
	// FullDirs are those of PrivateDirs that were full when the job failed, for LimitTmp.
	FullDirs []string
	Cgroup   string // cgroup mode that enforced the limits: "v2", "hybrid" or "v1"
	// Sensitive lists the sensitive paths, relative to the repository, that the job created or changed: those that
	// make tools on the host run code or behave differently. A job chose these bytes: quote them before showing them.
	Sensitive []string
	// SensitiveMore counts paths beyond those listed; SensitiveIncomplete reports that some paths could not be
	// examined.
	SensitiveMore       int
	SensitiveIncomplete bool
	SensitiveMissed     string // the first path that could not be examined, "" if unknown; quote it before showing it
	// Mounts are the places below the repository, relative to it, where other file systems are mounted on the host. Jobs do not see
	// those, and cannot write there. Only the first job of a jail with these mounts has them. Quote them before showing them.
	Mounts []string
	// RoomShort reports that the session's layer could not grow to its size while the job ran: the host's disk had little room.
	RoomShort bool
	// ReadOnly reports that the job asked to write to the repository (workspace direct) and could not: it is
	// configured as readonly, or was passed from a mount that is read-only.
	ReadOnly bool
	Left     bool // processes that the job had left running were ended with its first one
	Stopped  bool // with Cancelled: not its caller ended it, but another client (corral kill)
	// GitLocks are locks of git in the repository, relative to it, that a job which was ended left: they keep git from changing it.
	GitLocks []string
	Network  *NetworkUse // nil if the job had no network access, or its use is not known
}

// GitNote says which locks of git a job left, and what to do; "" if none.
func (r *Result) GitNote() string {
	if len(r.GitLocks) == 0 {
		return ""
	}
	return "the job was ended while git held " + strings.Join(r.GitLocks, " and ") + ": remove it if no other git is at work in the repository"
}

// NoSpace returns a text about the full directories of a job that reached LimitTmp, or that SIGBUS ended, and a hint for people; "" for
// other jobs.
func (r *Result) NoSpace() (text, hint string) {
	const bus = syscall.SIGBUS
	switch {
	case r.Limit == "" && (r.Signal == int(bus) || r.ExitCode == 128+int(bus)):
		return "a file that it had mapped into memory became shorter, or had no space left in its directory", "see df /dev/shm /tmp, and the limits tmp and memory"
	case r.Limit != LimitTmp:
		return "", ""
	}
	hint = "raise the limits tmp and memory"
	if slices.Contains(r.FullDirs, "/tmp") || slices.Contains(r.FullDirs, "/home") {
		hint += ", or run it in a session, whose /tmp and home directory are on disk"
	}
	return "no space left in " + strings.Join(r.FullDirs, ", "), hint
}

// ErrUnavailable reports that the supervisor cannot be reached.
var ErrUnavailable = errors.New("no supervisor")

// A Runner runs jobs.
type Runner interface {
	// Run starts a job and waits for it; no process of the job is left when it returns. If ctx is cancelled, the job
	// is killed and its Status is Cancelled. The error is a *Refusal if the job was not started.
	Run(ctx context.Context, spec Spec, stdio Stdio) (Result, error)
}
