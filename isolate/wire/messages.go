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
	Claim      job.Claim
}

func (r *Run) numbers() []*int64 {
	fields := r.Limits.Fields()
	list := make([]*int64, len(fields))
	for n, f := range fields {
		list[n] = f.Value
	}
	return list
}

// Append encodes r as a message with tag.
func (r *Run) Append(tag uint32) []byte {
	e := encoder{b: make([]byte, 0, 512+len(r.Repo)+len(r.Dir))}
	e.header(OpRun, tag)
	e.u32(r.Flags)
	for _, n := range r.numbers() {
		e.i64(*n)
	}
	e.u16(r.Rows)
	e.u16(r.Cols)
	e.text(r.Profile, MaxName)
	e.text(r.Session, MaxName)
	e.text(r.Tool, MaxName)
	e.text(r.Repo, MaxPath)
	e.text(r.Dir, MaxPath)
	e.text(r.Common, MaxPath)
	e.text(r.Network, MaxNetwork)
	e.claim(r.Claim)
	return e.b
}

// ReadRun decodes the body of a Run.
func ReadRun(body []byte) (Run, error) {
	d := decoder{b: body}
	r := Run{Flags: d.u32()}
	for _, n := range r.numbers() {
		*n = d.i64()
	}
	r.Rows, r.Cols = d.u16(), d.u16()
	r.Profile, r.Session, r.Tool = d.text(MaxName), d.text(MaxName), d.text(MaxName)
	r.Repo, r.Dir, r.Common, r.Network = d.text(MaxPath), d.text(MaxPath), d.text(MaxPath), d.text(MaxNetwork)
	r.Claim = d.claim()
	d.bad = d.bad || r.Flags >= flagsEnd || r.Flags&FlagCommon != 0 && r.Common == ""
	return r, d.done()
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

// Append encodes s as a message for the job tag.
func (s Signal) Append(tag uint32) []byte {
	e := encoder{}
	e.header(OpSignal, tag)
	e.u8(s.Number)
	e.u8(bit(s.Everyone, 1) | bit(s.Ends, 2))
	return e.b
}

// ReadSignal decodes the body of a Signal.
func ReadSignal(body []byte) (Signal, error) {
	d := decoder{b: body}
	s := Signal{Number: d.u8()}
	flags := d.u8()
	s.Everyone, s.Ends = flags&1 != 0, flags&2 != 0
	d.bad = d.bad || s.Number > 64 || flags > 3 || s.Ends && !s.Everyone
	return s, d.done()
}

// Welcome is the reply to Hello. The front-end of an embedded supervisor switches to FrontUID and FrontGID, ids without
// an account, if there is no better user.
type Welcome struct {
	Instance           string
	FrontUID, FrontGID uint32
	Record             job.Recording // what requests should claim of their programs
}

// Append encodes w as a message.
func (w Welcome) Append(tag uint32) []byte {
	e := encoder{}
	e.header(OpWelcome, tag)
	e.text(w.Instance, MaxName)
	e.u32(w.FrontUID)
	e.u32(w.FrontGID)
	e.u8(uint8(w.Record))
	return e.b
}

// ReadWelcome decodes the body of a Welcome.
func ReadWelcome(body []byte) (Welcome, error) {
	d := decoder{b: body}
	w := Welcome{Instance: d.text(MaxName), FrontUID: d.u32(), FrontGID: d.u32(), Record: job.Recording(d.u8())}
	d.bad = d.bad || w.Record > job.RecordCode
	return w, d.done()
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

func (r *Result) numbers() []*int64 {
	return []*int64{&r.Wall, &r.CPU, &r.User, &r.System, &r.PeakMemory, &r.PeakPIDs, &r.ReadBytes, &r.WriteBytes}
}

func bit(on bool, value uint8) uint8 {
	if on {
		return value
	}
	return 0
}

// Append encodes r as the answer to tag.
func (r *Result) Append(tag uint32) []byte {
	e := encoder{b: make([]byte, 0, 256+len(r.Sensitive))}
	e.header(OpResult, tag)
	e.u8(uint8(r.Outcome))
	e.u8(bit(r.OOM, 1) | bit(r.PIDsMax, 2) | bit(r.Incomplete, 4) | bit(r.LayerFull, 8) |
		bit(r.FilesFull, 16) | bit(r.ReadOnly, 32) | bit(r.RoomShort, 64))
	e.u8(bit(r.Left, 1))
	e.u8(r.TmpFull)
	e.u32(r.WaitStatus)
	e.u32(r.More)
	e.u32(r.Errno)
	for _, n := range r.numbers() {
		e.i64(*n)
	}
	e.text(r.Job, MaxName)
	e.text(r.Cgroup, MaxName)
	e.text(r.Step, MaxName)
	e.text(r.Message, MaxText)
	e.text(r.Hint, MaxText)
	e.text(r.Sensitive, MaxSensitive)
	e.text(r.Missed, MaxPath)
	e.text(r.Mounts, MaxMounts)
	e.text(r.Reached, MaxReached)
	return e.b
}

// ReadResult decodes the body of a Result.
func ReadResult(body []byte) (Result, error) {
	d := decoder{b: body}
	r := Result{Outcome: Outcome(d.u8())}
	flags := d.u8()
	r.OOM, r.PIDsMax, r.Incomplete, r.LayerFull, r.FilesFull = flags&1 != 0, flags&2 != 0, flags&4 != 0, flags&8 != 0, flags&16 != 0
	r.ReadOnly, r.RoomShort = flags&32 != 0, flags&64 != 0
	left := d.u8()
	r.Left = left&1 != 0
	r.TmpFull = d.u8()
	r.WaitStatus, r.More, r.Errno = d.u32(), d.u32(), d.u32()
	for _, n := range r.numbers() {
		*n = d.i64()
	}
	r.Job, r.Cgroup, r.Step = d.text(MaxName), d.text(MaxName), d.text(MaxName)
	r.Message, r.Hint, r.Sensitive = d.text(MaxText), d.text(MaxText), d.text(MaxSensitive)
	r.Missed, r.Mounts, r.Reached = d.text(MaxPath), d.text(MaxMounts), d.text(MaxReached)
	d.bad = d.bad || r.Outcome == 0 || r.Outcome >= outcomeEnd || flags > 127 || left > 1 || r.TmpFull > 15
	return r, d.done()
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

// Append encodes en as part of the answer to tag.
func (en *Entry) Append(tag uint32) []byte {
	e := encoder{}
	e.header(OpEntry, tag)
	e.u32(en.UID)
	e.i64(en.Started)
	e.i64(en.Memory)
	e.i64(en.CPU)
	e.i64(en.MemoryNow)
	e.text(en.Job, MaxName)
	e.text(en.Repo, MaxPath)
	for _, claim := range []string{en.Tool, en.Runtime, en.Principal, en.Artifact} {
		e.text(claim, job.MaxClaim)
	}
	return e.b
}

// ReadEntry decodes the body of an Entry.
func ReadEntry(body []byte) (Entry, error) {
	d := decoder{b: body}
	en := Entry{
		UID: d.u32(), Started: d.i64(), Memory: d.i64(), CPU: d.i64(), MemoryNow: d.i64(), Job: d.text(MaxName), Repo: d.text(MaxPath),
		Tool: d.text(job.MaxClaim), Runtime: d.text(job.MaxClaim), Principal: d.text(job.MaxClaim),
		Artifact: d.text(job.MaxClaim),
	}
	return en, d.done()
}

// Fact is one property of the supervisor's host: whether a feature is present, and what the supervisor does without it.
type Fact struct {
	Name    string
	Present bool
	Detail  string
}

// Append encodes f as part of the answer to tag.
func (f *Fact) Append(tag uint32) []byte {
	e := encoder{}
	e.header(OpFact, tag)
	e.u8(bit(f.Present, 1))
	e.text(f.Name, MaxName)
	e.text(f.Detail, MaxText)
	return e.b
}

// ReadFact decodes the body of a Fact.
func ReadFact(body []byte) (Fact, error) {
	d := decoder{b: body}
	present := d.u8()
	f := Fact{Present: present == 1, Name: d.text(MaxName), Detail: d.text(MaxText)}
	d.bad = d.bad || present > 1
	return f, d.done()
}
