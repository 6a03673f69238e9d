// Package job has the words of corral: what a client asks for, what was decided, and what became of it.
//
// A job is one run of a program in a jail. A Spec says what to run and within which Limits; a Result says what happened.
// What a job did is data (a Status, an exit code, the limit it met): a Go error means that corral itself failed, or that
// the job was refused before it started (*Refusal).
//
// The package uses the standard library only and knows no mechanism: the packages that do implement its interfaces.
package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// A Workspace says what a job may do to the repository it runs in.
type Workspace uint8

const (
	// Direct writes through; files belong to the repository's owner. It is the zero value.
	Direct Workspace = iota
	// ReadOnly lets nothing be changed: EROFS.
	ReadOnly
	// Overlay writes to the layer of the job's session; the repository stays as it is.
	Overlay
	// NoRepo has nothing at the repository's own path, whatever else the operator shows of the directories above it. Of a
	// worktree, the git directory is not mounted for the job; where it lies in a directory that is shown read-only to every
	// job, it is seen there. The working directory is NoRepoDir; there is no session.
	NoRepo
)

// NoRepoDir is the working directory of a job with Workspace NoRepo.
const NoRepoDir = "/tmp"

// String returns the word that command lines and configuration use.
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

// ParseWorkspace reads the word that String writes. NoRepo is no word for it: what is said of a repository is not that there
// is none.
func ParseWorkspace(s string) (Workspace, error) {
	switch s {
	case "direct", "":
		return Direct, nil
	case "readonly":
		return ReadOnly, nil
	case "overlay":
		return Overlay, nil
	}
	return Direct, fmt.Errorf("workspace %q is not known: direct, overlay or readonly", s)
}

// Limits bound a job. A zero field takes the supervisor's default, see Defaults; where a limit can be lifted, Unlimited
// says so.
type Limits struct {
	Memory    int64         // bytes, of all processes together; swap is never used
	MilliCPUs int64         // thousandths of a CPU; default Unlimited, all of the host's
	PIDs      int64         // processes and threads
	Wall      time.Duration // from start to end; default Unlimited
	Tmp       int64         // bytes in each private directory (/tmp, /var/tmp, /home, /dev/shm)
	TmpInodes int64         // files in each of them
	Disk      int64         // bytes the job may add to the repository; default Unlimited
	Inodes    int64         // files the job may add to the repository; default Unlimited
	FileSize  int64         // bytes of one file; default Unlimited
	OpenFiles int64         // descriptors of one process
}

// Unlimited lifts a limit that can be lifted: CPU, wall time, disk, inodes and file size.
const Unlimited = -1

// Defaults returns the limits of a job that asks for none.
func Defaults() Limits {
	return Limits{
		Memory: 2 << 30, MilliCPUs: Unlimited, PIDs: 512, Wall: Unlimited,
		Tmp: 512 << 20, TmpInodes: 65536, Disk: Unlimited, Inodes: Unlimited, FileSize: Unlimited, OpenFiles: 4096,
	}
}

// Size is a terminal's, in characters. The zero value is no terminal.
type Size struct{ Rows, Cols uint16 }

// A Spec is a job to run.
type Spec struct {
	Repo      string   // absolute path of the repository
	Dir       string   // working directory relative to Repo; "" is Repo, or NoRepoDir
	Args      []string // the program and its arguments; a program without a slash is looked for in PATH of Env
	Env       []string // the whole environment, NAME=value
	Workspace Workspace
	// Session is the id of an open session that the job runs in, or of a kept layer; "" is none. Workspace Overlay needs one.
	// Repo and Profile must be the session's, or "".
	Session string
	// Protect keeps sensitive paths read-only; with Workspace Direct. The operator may have said more for the repository.
	Protect  Protection
	Tool     Tool   // a program of corral's own in place of Args[0]; "" is none
	Profile  string // of system calls: "default" or "strict"; "" is default
	Limits   Limits
	Terminal Size // non-zero: the job gets a terminal of its own, and Stdio is not used
	Files    []File
	Claim    Claim // for the audit log
}

// Stdio is what a job reads and writes. Each is the job's end of a pipe, which the runner takes over: it is closed when
// the job has it. A nil Stdin is /dev/null. A job with a terminal has no pipes.
type Stdio struct {
	Stdin, Stdout, Stderr *os.File
	// Terminal is called with the master of the job's terminal, which it takes over, before Run returns; once, or never if
	// the job does not come to be. It must not block. nil closes the master.
	Terminal func(master *os.File)
	// Started is called when the job was asked for, before Run returns: once for each attempt to run it, if there are more,
	// of which the last counts. It must not block. nil is nobody who signals the job.
	Started func(s Signaler)
}

// A Status says how a job ended.
type Status string

const (
	// Success is exit code 0.
	Success Status = "success"
	// Failure is another exit code, a signal, or a limit that ended the job.
	Failure Status = "failure"
	// Timeout is the end at the deadline.
	Timeout Status = "timeout"
	// Cancelled is the end by who asked for the job.
	Cancelled Status = "cancelled"
	// Lost is the end of the supervisor while the job ran.
	Lost Status = "lost"
	// Denied is a request that no job was made of.
	Denied Status = "denied"
)

// Names of limits as a Result has them.
const (
	LimitMemory = "memory"
	LimitPIDs   = "pids"
	LimitDisk   = "disk"
	LimitFiles  = "files"
	LimitOutput = "output" // not all that the job wrote was kept
)

// Usage is what a job used. -1 stands for what this kernel cannot say.
type Usage struct {
	Wall       time.Duration // from the start of the program to the end of its last process
	CPU        time.Duration // user and system
	User       time.Duration
	System     time.Duration
	PeakMemory int64 // bytes, with page cache charged to the job
	PeakPIDs   int64
	ReadBytes  int64 // from block devices
	WriteBytes int64 // to block devices
}

// A Result says what became of a job.
type Result struct {
	ID       string
	Status   Status
	ExitCode int    // of the first process; -1 when a signal ended it
	Signal   int    // that ended it, or 0
	Limit    string // that was reached: a Limit name, or ""
	Usage    Usage
	Cgroup   string // what enforced the limits: "v2", "hybrid" or "v1"
	// Sensitive are paths in the repository that the job made or changed and that make tools on the host run code or
	// behave differently, relative to the repository. They are bytes a job chose: quote them before showing them.
	Sensitive []string
	// SensitiveMore counts paths beyond those listed; SensitiveIncomplete says that not everything was looked at.
	SensitiveMore       int
	SensitiveIncomplete bool
	// ReadOnly says that the job was to write to the repository (workspace direct) and could not: it is configured as
	// readonly, or was passed from a mount that is read-only.
	ReadOnly bool
}

// A Refusal is a job that was not started.
type Refusal struct {
	Step    string // where: a step of the confinement, or "request", "repo", "limits", "profile", "workspace", "jail"
	Errno   int    // of the kernel, or 0
	Message string
	Hint    string // what a person can do about it, or ""
}

// Error returns the message, with the hint on a line of its own.
func (r *Refusal) Error() string {
	if r.Hint != "" {
		return r.Message + "\nhint: " + r.Hint
	}
	return r.Message
}

// ErrUnavailable is the supervisor that cannot be reached.
var ErrUnavailable = errors.New("no supervisor")

// A Runner runs jobs.
type Runner interface {
	// Run starts a job and waits for its end; no process of the job is left when it returns. When ctx ends the job is
	// ended and its Status is Cancelled. The error is a *Refusal when the job was not started.
	Run(ctx context.Context, spec Spec, stdio Stdio) (Result, error)
}
