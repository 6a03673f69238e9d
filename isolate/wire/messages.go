package wire

import (
	"math/bits"
	"strconv"

	"corral/job"
)

// Flags of a Run.
const (
	FlagReadOnly     = 1 << iota // the repository is read-only
	FlagStdin                    // a descriptor for standard input is sent; otherwise it is /dev/null
	FlagTerminal                 // the job gets a terminal; no stdio descriptors are sent
	FlagRepo                     // a descriptor of the repository is sent; otherwise Repo names a configured one
	FlagOverlay                  // writes to the repository go to the session's layer
	FlagProtectHooks             // sensitive paths are read-only, see job.ProtectHooks
	FlagProtectAll               // likewise, see job.ProtectAll
	FlagCommon                   // a descriptor of Common is sent, after all others; otherwise Common names a configured one
	FlagNoRepo                   // nothing is mounted at the repository's path, see job.NoRepo
	FlagUsual                    // the environment is extended, see job.Spec.Usual
	flagsEnd
)

// Run requests a job. Its descriptors are, in this order and as Flags say: payload, stdout, stderr, stdin, repository,
// Common. In Limits, 0 is the supervisor's default, -1 none.
type Run struct {
	Flags      uint32
	Limits     job.Limits
	Rows, Cols uint16
	Profile    string // maximum MaxName bytes
	Session    string // maximum MaxName; "" is none
	Tool       string // a job.Tool, maximum MaxName
	Repo       string // maximum MaxPath
	Dir        string // relative to the repository, maximum MaxPath
	Common     string // the git directory that Repo is a worktree of, maximum MaxPath; "" is none
	Network    string // job.Spec.Network, maximum MaxNetwork; the supervisor reads no more than whether it is "" or "none"
	// Worktrees are the absolute paths of .git of the repository's other worktrees, each terminated by NUL, maximum MaxWorktrees bytes:
	// the job sees an empty directory in place of each, because git would take what is missing for removed.
	Worktrees string
	Bounds    job.Bounds // of what the job may do with the repository
	Claim     job.Claim
}

func (*Run) op() Op { return OpRun }

func (r *Run) fields(c *coder) {
	c.u32(&r.Flags)
	for _, f := range r.Limits.Fields() {
		c.i64(f.Value)
	}
	c.u16(&r.Rows)
	c.u16(&r.Cols)
	c.text(MaxName, &r.Profile, &r.Session, &r.Tool)
	c.text(MaxPath, &r.Repo, &r.Dir, &r.Common)
	c.text(MaxNetwork, &r.Network)
	c.text(MaxWorktrees, &r.Worktrees)
	c.text(job.MaxBounds, (*string)(&r.Bounds))
	c.claim(&r.Claim)
	c.check(r.Flags < flagsEnd && (r.Flags&FlagCommon == 0 || r.Common != ""))
}

// Descriptors returns the number of descriptors that must come with r.
func (r *Run) Descriptors() int {
	n := 1 + bits.OnesCount32(r.Flags&(FlagStdin|FlagRepo|FlagCommon))
	if r.Flags&FlagTerminal == 0 {
		n += 2
	}
	return n
}

// Signal requests a signal to the job that the header's tag names. Number 0 ends the whole job: by SIGTERM, and by SIGKILL when
// Limits.KillAfter has passed. A second one kills it at once.
type Signal struct {
	Number   uint8
	Everyone bool // to every process of the job, not only its first
	Ends     bool // as number 0, but by this signal, and a job that ends in time is not a cancelled one; requires Everyone
}

func (*Signal) op() Op { return OpSignal }

func (s *Signal) fields(c *coder) {
	c.u8(&s.Number)
	c.flags(&s.Everyone, &s.Ends)
	c.check(s.Number <= 64 && (s.Everyone || !s.Ends))
}

// Welcome is the reply to Hello. The front-end of an embedded supervisor switches to FrontUID and FrontGID, ids without
// an account, if there is no better user.
type Welcome struct {
	Instance           string
	FrontUID, FrontGID uint32
	Record             job.Recording // what requests should claim of their programs
}

func (*Welcome) op() Op { return OpWelcome }

func (w *Welcome) fields(c *coder) {
	c.text(MaxName, &w.Instance)
	c.u32(&w.FrontUID)
	c.u32(&w.FrontGID)
	c.u8((*uint8)(&w.Record))
	c.check(w.Record <= job.RecordCode)
}

// An Outcome is how a job ended, or Refused if it was not started.
type Outcome uint8

// The outcomes.
const (
	Exited    Outcome = iota + 1 // WaitStatus is the first process's wait status
	Deadline                     // ended at the deadline; WaitStatus has the signal that it ended by
	Killed                       // ended on its client's request; likewise
	OverDisk                     // killed because it wrote too many bytes to the repository
	OverFiles                    // killed because it created too many files there
	Vanished                     // ended without its reaper's report: killed by the memory limit, or from outside
	Refused                      // not started; see Step, Errno, Message and Hint
	OverLocks                    // killed because it had too many record locks
	Stopped                      // as Killed, but at the request of another client (corral kill)
	outcomeEnd
)

// outcomeNames are the outcomes in the diagnostic log.
var outcomeNames = [outcomeEnd]string{
	Exited: "exited", Deadline: "deadline", Killed: "killed", OverDisk: "over-disk", OverFiles: "over-files", Vanished: "vanished",
	Refused: "refused", OverLocks: "over-locks", Stopped: "stopped",
}

// String returns the outcome's name, or its number if it has none.
func (o Outcome) String() string {
	if o < outcomeEnd && outcomeNames[o] != "" {
		return outcomeNames[o]
	}
	return "outcome " + strconv.Itoa(int(o))
}

// Result is the reply to a Run, sent when the job has ended or was refused.
type Result struct {
	Outcome    Outcome
	WaitStatus uint32 // see wait(2)
	OOM        bool
	UserMemory int64 // with OOM, the limit in bytes of the memory of all jobs of the user, if that was reached; else 0
	PIDsMax    bool
	Incomplete bool  // not all files were checked for Sensitive
	LayerFull  bool  // the session's layer ran out of bytes
	FilesFull  bool  // the session's layer ran out of inodes
	RoomShort  bool  // the session's layer could not grow to its size: the host's disk had little room
	Left       bool  // processes that the job had left running were killed when its first process had ended
	TmpFull    uint8 // bit i: job.PrivateDirs()[i] was full when the job's first process ended
	ReadOnly   bool  // the job requested write access, but the repository is read-only for every job
	More       uint32
	Errno      uint32
	Wall       int64 // nanoseconds, like CPU, User and System
	CPU        int64
	User       int64
	System     int64
	PeakMemory int64
	PeakPIDs   int64
	ReadBytes  int64
	WriteBytes int64
	Job        string
	Cgroup     string
	Step       string
	Message    string
	Hint       string
	Sensitive  string // changed paths, each terminated by NUL
	Missed     string // with Incomplete, the first path that was not checked; "" is unknown
	Mounts     string // where other file systems are mounted below the repository, each path terminated by NUL; see job.Result
	Reached    string // JSON of egress/control.Summary, "" without network access: by a program without rights, and not read by the supervisor
}

func (*Result) op() Op { return OpResult }

func (r *Result) fields(c *coder) {
	c.u8((*uint8)(&r.Outcome))
	c.flags(&r.OOM, &r.PIDsMax, &r.Incomplete, &r.LayerFull, &r.FilesFull, &r.ReadOnly, &r.RoomShort)
	c.flags(&r.Left)
	c.u8(&r.TmpFull)
	c.u32(&r.WaitStatus)
	c.u32(&r.More)
	c.u32(&r.Errno)
	c.i64(&r.Wall, &r.CPU, &r.User, &r.System, &r.PeakMemory, &r.PeakPIDs, &r.ReadBytes, &r.WriteBytes, &r.UserMemory)
	c.text(MaxName, &r.Job, &r.Cgroup, &r.Step)
	c.text(MaxText, &r.Message, &r.Hint)
	c.text(MaxSensitive, &r.Sensitive)
	c.text(MaxPath, &r.Missed)
	c.text(MaxMounts, &r.Mounts)
	c.text(MaxReached, &r.Reached)
	c.check(r.Outcome != 0 && r.Outcome < outcomeEnd && r.TmpFull <= 15)
}

// Entry is one running job in the answer to List and Commands. In the answer to Commands, an open /proc/PID/cmdline of the job's first
// process comes with it, if there is one. The supervisor does not read that file: reading it can block, and what it says is the job's.
type Entry struct {
	Job     string
	UID     uint32 // the client's user id
	Started int64  // nanoseconds since the Unix epoch
	Memory  int64  // peak memory use in bytes; -1 is unknown
	CPU     int64  // CPU time so far, in nanoseconds; -1 is unknown
	// MemoryNow is the memory in use in bytes; -1 is unknown.
	MemoryNow int64
	Repo      string
	// What the front-end said about the request; "" where it said nothing.
	Tool, Runtime, Principal string
	Artifact                 string // handle under which the output will be stored
	// Command is the program and its arguments, as a shell would take them: what the client read from the descriptor, without secrets.
	// It is not part of the message. The job chose it: escape it before showing it. "" is unknown.
	Command string
}

func (*Entry) op() Op { return OpEntry }

func (en *Entry) fields(c *coder) {
	c.u32(&en.UID)
	c.i64(&en.Started, &en.Memory, &en.CPU, &en.MemoryNow)
	c.text(MaxName, &en.Job)
	c.text(MaxPath, &en.Repo)
	c.text(job.MaxClaim, &en.Tool, &en.Runtime, &en.Principal, &en.Artifact)
}

// Fact is one property of the supervisor's host: whether a feature is present, and what the supervisor does without it.
type Fact struct {
	Name    string
	Present bool
	Detail  string
}

func (*Fact) op() Op { return OpFact }

func (f *Fact) fields(c *coder) {
	c.flags(&f.Present)
	c.text(MaxName, &f.Name)
	c.text(MaxText, &f.Detail)
}
