package wire

import (
	"math/bits"

	"corral/job"
)

// Flags of a Run.
const (
	FlagReadOnly     = 1 << iota // the repository cannot be written
	FlagStdin                    // a descriptor for standard input is there; else it is /dev/null
	FlagTerminal                 // the job gets a terminal; no stdio descriptors
	FlagRepo                     // a descriptor of the repository is there; else Repo names one the supervisor serves
	FlagOverlay                  // the repository is written to on the session's layer
	FlagProtectHooks             // sensitive paths are read-only, see job.ProtectHooks
	FlagProtectAll               // likewise, see job.ProtectAll
	FlagCommon                   // a descriptor of Common is there, after all others; else Common names one the supervisor serves
	FlagNoRepo                   // nothing is at the repository's own path, see job.NoRepo
	flagsEnd
)

// Run asks for a job. Its descriptors are, in this order and as Flags say: payload, stdout, stderr, stdin, repository.
// Limits are as in job.Limits: 0 is the supervisor's default, -1 none.
type Run struct {
	Flags      uint32
	Memory     int64
	MilliCPUs  int64
	PIDs       int64
	Wall       int64 // nanoseconds
	Tmp        int64
	TmpInodes  int64
	Disk       int64
	Inodes     int64
	FileSize   int64
	OpenFiles  int64
	Rows, Cols uint16
	Profile    string // at most MaxName
	Session    string // at most MaxName; "" is none
	Tool       string // at most MaxName: a job.Tool
	Repo       string // at most MaxPath
	Dir        string // relative to the repository, at most MaxPath
	Common     string // the git directory that Repo is a worktree of, at most MaxPath; "" is none
	Claim      job.Claim
}

func (r *Run) numbers() []*int64 {
	return []*int64{
		&r.Memory, &r.MilliCPUs, &r.PIDs, &r.Wall, &r.Tmp, &r.TmpInodes, &r.Disk, &r.Inodes, &r.FileSize, &r.OpenFiles,
	}
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
	e.claim(r.Claim)
	return e.b
}

// ReadRun decodes what follows the header of a Run.
func ReadRun(body []byte) (Run, error) {
	d := decoder{b: body}
	r := Run{Flags: d.u32()}
	for _, n := range r.numbers() {
		*n = d.i64()
	}
	r.Rows, r.Cols = d.u16(), d.u16()
	r.Profile, r.Session, r.Tool = d.text(MaxName), d.text(MaxName), d.text(MaxName)
	r.Repo, r.Dir, r.Common = d.text(MaxPath), d.text(MaxPath), d.text(MaxPath)
	r.Claim = d.claim()
	d.bad = d.bad || r.Flags >= flagsEnd || r.Flags&FlagCommon != 0 && r.Common == ""
	return r, d.done()
}

// Descriptors is the number that must come with r.
func (r *Run) Descriptors() int {
	n := 1 + bits.OnesCount32(r.Flags&(FlagStdin|FlagRepo|FlagCommon))
	if r.Flags&FlagTerminal == 0 {
		n += 2
	}
	return n
}

// Signal asks to signal the job that the header's tag names. Number 0 ends the job as a whole, by SIGKILL.
type Signal struct {
	Number   uint8
	Everyone bool // every process of the job, not only its first
}

// Append encodes s as a message for the job tag.
func (s Signal) Append(tag uint32) []byte {
	e := encoder{}
	e.header(OpSignal, tag)
	e.u8(s.Number)
	everyone := uint8(0)
	if s.Everyone {
		everyone = 1
	}
	e.u8(everyone)
	return e.b
}

// ReadSignal decodes what follows the header of a Signal.
func ReadSignal(body []byte) (Signal, error) {
	d := decoder{b: body}
	s := Signal{Number: d.u8()}
	everyone := d.u8()
	s.Everyone = everyone == 1
	d.bad = d.bad || s.Number > 64 || everyone > 1
	return s, d.done()
}

// Welcome answers Hello. FrontUID and FrontGID are who an embedded supervisor's front-end shall become when there is no
// better user: ids that are nobody's.
type Welcome struct {
	Instance           string
	FrontUID, FrontGID uint32
}

// Append encodes w as a message.
func (w Welcome) Append(tag uint32) []byte {
	e := encoder{}
	e.header(OpWelcome, tag)
	e.text(w.Instance, MaxName)
	e.u32(w.FrontUID)
	e.u32(w.FrontGID)
	return e.b
}

// ReadWelcome decodes what follows the header of a Welcome.
func ReadWelcome(body []byte) (Welcome, error) {
	d := decoder{b: body}
	w := Welcome{Instance: d.text(MaxName), FrontUID: d.u32(), FrontGID: d.u32()}
	return w, d.done()
}

// An Outcome is how a job ended, or that it never began.
type Outcome uint8

// The outcomes.
const (
	Exited    Outcome = iota + 1 // WaitStatus is the first process's
	Deadline                     // ended at the deadline
	Killed                       // ended on request
	OverDisk                     // ended for the bytes it put into the repository
	OverFiles                    // ended for the files it put there
	Vanished                     // ended without its reaper's report: by the memory limit, or from outside
	Refused                      // not started: Step, Errno, Message, Hint
	outcomeEnd
)

// Result ends a Run.
type Result struct {
	Outcome    Outcome
	WaitStatus uint32 // as wait(2) gives it
	OOM        bool
	PIDsMax    bool
	Incomplete bool // not everything was looked at for Sensitive
	LayerFull  bool // no byte was left on the session's layer
	FilesFull  bool // no file was left on it
	ReadOnly   bool // the job was to write to the repository, and could not: it is read-only for every job
	More       uint32
	Errno      uint32
	Wall       int64 // nanoseconds, as User and System
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
	Sensitive  string // paths, each ended by NUL
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
	e.u8(bit(r.OOM, 1) | bit(r.PIDsMax, 2) | bit(r.Incomplete, 4) | bit(r.LayerFull, 8) | bit(r.FilesFull, 16) | bit(r.ReadOnly, 32))
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
	return e.b
}

// ReadResult decodes what follows the header of a Result.
func ReadResult(body []byte) (Result, error) {
	d := decoder{b: body}
	r := Result{Outcome: Outcome(d.u8())}
	flags := d.u8()
	r.OOM, r.PIDsMax, r.Incomplete, r.LayerFull, r.FilesFull = flags&1 != 0, flags&2 != 0, flags&4 != 0, flags&8 != 0, flags&16 != 0
	r.ReadOnly = flags&32 != 0
	r.WaitStatus, r.More, r.Errno = d.u32(), d.u32(), d.u32()
	for _, n := range r.numbers() {
		*n = d.i64()
	}
	r.Job, r.Cgroup, r.Step = d.text(MaxName), d.text(MaxName), d.text(MaxName)
	r.Message, r.Hint, r.Sensitive = d.text(MaxText), d.text(MaxText), d.text(MaxSensitive)
	d.bad = d.bad || r.Outcome == 0 || r.Outcome >= outcomeEnd || flags > 63
	return r, d.done()
}

// Entry is one running job in the answer to List.
type Entry struct {
	Job     string
	UID     uint32 // of the client
	Started int64  // nanoseconds since the epoch
	Memory  int64  // bytes in use at their peak
	Repo    string
}

// Append encodes en as part of the answer to tag.
func (en *Entry) Append(tag uint32) []byte {
	e := encoder{}
	e.header(OpEntry, tag)
	e.u32(en.UID)
	e.i64(en.Started)
	e.i64(en.Memory)
	e.text(en.Job, MaxName)
	e.text(en.Repo, MaxPath)
	return e.b
}

// ReadEntry decodes what follows the header of an Entry.
func ReadEntry(body []byte) (Entry, error) {
	d := decoder{b: body}
	en := Entry{UID: d.u32(), Started: d.i64(), Memory: d.i64(), Job: d.text(MaxName), Repo: d.text(MaxPath)}
	return en, d.done()
}

// Fact is one thing the supervisor knows of its host: what is there, and what is done without it.
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

// ReadFact decodes what follows the header of a Fact.
func ReadFact(body []byte) (Fact, error) {
	d := decoder{b: body}
	present := d.u8()
	f := Fact{Present: present == 1, Name: d.text(MaxName), Detail: d.text(MaxText)}
	d.bad = d.bad || present > 1
	return f, d.done()
}
