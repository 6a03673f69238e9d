// Package inside is what happens inside a jail: the messages of the supervisor with the stub that becomes a job, and the
// jail's init, process 1 of the jail, which starts stubs.
//
// The order of a job's confinement is the four tables of steps in cmd/corral-init/stub (slot_steps, ahead_steps,
// place_steps, confine_steps); Steps has their names, which are the places errors are reported at. What is done in
// them, and why, stands there once.
//
// The package imports the standard library and golang.org/x/sys only: it is linked into the static corral-init.
package inside

import (
	"cmp"
	"encoding/binary"
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Layout of the messages, as cmd/corral-init/stub/plan.h has them; a test holds the two together.
const (
	planVersion  = 4
	pathSize     = 4096
	planStrings  = 3
	stepSize     = 24
	rlimits      = 16
	prepareSize  = 48
	bindSize     = 4168
	bindSource   = 8
	bindTarget   = 72
	planSize     = 12584 // at most
	planSoft     = 40
	planHard     = 168
	planPaths    = 296
	keptSize     = 57352 // at most
	keptList     = 8
	orderSize    = 16
	ownerSize    = 8
	holderSize   = 4
	probeSize    = probePath + pathSize
	probePath    = 32
	reportSize   = 40
	controlFD    = 3 // of a stub and of the init
	stubFD       = 4 // of the init: the stub's program
	planTTY      = 1
	planReadOnly = 2
	planStdin    = 4
	planExecFD   = 8
	planStarted  = 16
	planLayer    = 32
	planRootCwd  = 64
	planKept     = 128
	planCommonFD = 256
	planNoRepo   = 512
)

// ProbedSize is the size of a Probed, which a received message follows.
const ProbedSize = 72

// MaxGroups is how many cgroups a stub can join by itself.
const MaxGroups = 4

// Prepare is what a slot needs to be made ready. Its descriptors are the compiled seccomp programs and Groups tasks files.
type Prepare struct {
	UID       uint32 // of the job inside the jail; its group has the same number
	Skip      uint64 // bit n leaves out step n of Steps: for tests that show what a step is good for
	TmpBytes  int64  // size of each private directory
	TmpInodes int64
	Last      int    // how many bytes at the end of the programs are the one that is loaded last
	Groups    int    // of cgroup version 1 that the stub is to join, at most MaxGroups
	Binds     []Bind // sent after it, see Bind.Append
	Shares    []Root // sent after those, each with the mount as its descriptor, which is put on Target: that is there
	Roots     []Root // sent after those, each with the mount as its descriptor
}

// A Root is a mount that comes as a descriptor. Of those of which the job's root consists, in place of the jail's, Target is "/"
// for the first. It is shorter than 4096 bytes.
type Root struct{ Target string }

// Append encodes r.
func (r Root) Append() []byte { return Bind{Target: r.Target}.Append() }

// A Bind is a directory of the jail that a job sees at another place too, over its private directories: Source is
// shorter than 64 bytes, Target than 4096. Without a Source it is the place alone.
type Bind struct{ Source, Target string }

// Append encodes b.
func (b Bind) Append() []byte {
	m := make([]byte, bindSize)
	binary.LittleEndian.PutUint32(m, planVersion)
	copy(m[bindSource:bindTarget-1], b.Source)
	copy(m[bindTarget:bindSize-1], b.Target)
	return m
}

// Append encodes p, without its Binds.
func (p Prepare) Append() []byte {
	b := make([]byte, 0, prepareSize)
	b = binary.LittleEndian.AppendUint32(b, planVersion)
	b = binary.LittleEndian.AppendUint32(b, p.UID)
	for _, n := range []uint64{p.Skip, uint64(p.TmpBytes), uint64(p.TmpInodes)} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(p.Binds)+len(p.Shares)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(p.Roots)))
	b = binary.LittleEndian.AppendUint32(b, uint32(p.Groups))
	return binary.LittleEndian.AppendUint32(b, uint32(p.Last))
}

// Rlimit is one resource limit of setrlimit(2): both values in the resource's own unit.
type Rlimit struct {
	Resource   int
	Soft, Hard uint64
}

// Plan is one job for a ready slot. Its descriptors are, in this order: the repository's mount unless NoRepo, the payload,
// stdout and stderr unless Terminal, stdin if Stdin, the program if ExecFD, the layer's mount if Layer, the common directory's if Common is not "".
type Plan struct {
	Terminal, ReadOnly, Stdin, ExecFD bool
	SayStarted                        bool          // report Started
	Layer                             bool          // the layer is mounted at /var/layer
	RootDir                           bool          // Dir is relative to the root, not to the repository
	Kept                              bool          // a Kept follows
	NoRepo                            bool          // nothing is at Repo; with RootDir
	Wall                              time.Duration // the stub's own deadline; 0 none
	TmpBytes, TmpInodes               int64
	Rows, Cols                        uint16
	Rlimits                           []Rlimit
	Repo                              string // absolute path of the mount, shorter than 4096 bytes
	Dir                               string // relative to it, likewise
	Common                            string // absolute path of the git directory that it is a worktree of, likewise
}

// Append encodes p.
func (p *Plan) Append() []byte {
	b := make([]byte, planPaths, planPaths+len(p.Repo)+len(p.Dir)+len(p.Common)+planStrings+1)
	flags := uint32(0)
	for flag, on := range map[uint32]bool{planTTY: p.Terminal, planReadOnly: p.ReadOnly, planStdin: p.Stdin, planExecFD: p.ExecFD, planStarted: p.SayStarted, planLayer: p.Layer, planRootCwd: p.RootDir, planKept: p.Kept, planCommonFD: p.Common != "", planNoRepo: p.NoRepo} {
		if on {
			flags |= flag
		}
	}
	binary.LittleEndian.PutUint32(b, planVersion)
	binary.LittleEndian.PutUint32(b[4:], flags)
	binary.LittleEndian.PutUint64(b[8:], uint64(p.Wall))
	binary.LittleEndian.PutUint64(b[16:], uint64(p.TmpBytes))
	binary.LittleEndian.PutUint64(b[24:], uint64(p.TmpInodes))
	mask := uint32(0)
	for _, l := range p.Rlimits {
		mask |= 1 << l.Resource
		binary.LittleEndian.PutUint64(b[planSoft+8*l.Resource:], l.Soft)
		binary.LittleEndian.PutUint64(b[planHard+8*l.Resource:], l.Hard)
	}
	binary.LittleEndian.PutUint32(b[32:], mask)
	binary.LittleEndian.PutUint16(b[36:], p.Rows)
	binary.LittleEndian.PutUint16(b[38:], p.Cols)
	dir := p.Dir
	if dir == "" {
		dir = "."
	}
	for _, path := range [planStrings]string{p.Repo, dir, p.Common} {
		b = append(append(b, path[:min(len(path), pathSize-1)]...), 0)
	}
	return b
}

// Kept is what the job is to leave alone, see scan.KeptAnswer: List is at most MaxKept bytes, which the stub reads.
type Kept struct {
	Count uint32
	List  string
}

// MaxKept is how long the list of a Kept can be.
const MaxKept = keptSize - keptList

// Append encodes k.
func (k Kept) Append() []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, keptList+len(k.List)), planVersion)
	b = binary.LittleEndian.AppendUint32(b, k.Count)
	return append(b, k.List[:min(len(k.List), MaxKept)]...)
}

// Order signals a running job.
type Order struct {
	Signal   int
	Everyone bool // every process of the job, not only its first
}

// Append encodes o.
func (o Order) Append() []byte {
	b := make([]byte, orderSize)
	binary.LittleEndian.PutUint32(b, planVersion)
	binary.LittleEndian.PutUint32(b[4:], uint32(o.Signal))
	if o.Everyone {
		b[8] = 1
	}
	return b
}

// UsersName is the name by which the stub makes user namespaces for the supervisor.
const UsersName = "users"

// AppendOwner encodes the request for a user namespace that the host's user uid owns, to the stub by the name of users. Any
// next message lets go of it.
func AppendOwner(uid uint32) []byte {
	b := make([]byte, ownerSize)
	binary.LittleEndian.PutUint32(b, planVersion)
	binary.LittleEndian.PutUint32(b[4:], uid)
	return b
}

// ReadHolder decodes the answer: the id of a process in the new namespace, which has no ids yet.
func ReadHolder(b []byte) (pid int, err error) {
	if len(b) != holderSize {
		return 0, ErrReport
	}
	switch n := int32(binary.LittleEndian.Uint32(b)); {
	case n > 0:
		return int(n), nil
	case n < 0:
		return 0, syscall.Errno(-n)
	}
	return 0, ErrReport
}

// ProbeName is the name by which the stub looks at files for the supervisor.
const ProbeName = "probe"

// A ProbeKind says what a Probe asks for.
type ProbeKind uint32

// The kinds.
const (
	ProbeStart   ProbeKind = iota + 1 // become user UID; the first message
	ProbeLook                         // look at the descriptor that comes along
	ProbeOpen                         // open Path, from the directory that comes along or from the root
	ProbeReceive                      // receive a message from the socket that comes along, with descriptors: see Received
	ProbeHold                         // hold what comes along; there is no answer
	ProbeClose                        // close everything that is held
)

// A Probe is a question to the stub by the name of probe. It answers each with a Probed, to ProbeOpen with the descriptor.
type Probe struct {
	Kind           ProbeKind
	UID            uint32 // of the host; the group id is the same number
	Flags, Resolve uint64 // of openat2(2); O_PATH is added
	Path           string // shorter than 4096 bytes
}

// Append encodes p.
func (p Probe) Append() []byte {
	b := make([]byte, probePath, probePath+len(p.Path)+1)
	binary.LittleEndian.PutUint32(b, planVersion)
	binary.LittleEndian.PutUint32(b[4:], uint32(p.Kind))
	binary.LittleEndian.PutUint32(b[8:], p.UID)
	binary.LittleEndian.PutUint64(b[16:], p.Flags)
	binary.LittleEndian.PutUint64(b[24:], p.Resolve)
	return append(append(b, p.Path[:min(len(p.Path), pathSize-1)]...), 0)
}

// Probed is what was found: a file by statx(2), and its file system by fstatfs(2).
type Probed struct {
	Mode, UID, GID uint32
	Dev, Ino       uint64
	FSType         int64  // magic number
	FSFlags        uint64 // ST_RDONLY and others, see statvfs(3)
	FreeBytes      int64
	FreeFiles      int64
}

// Received decodes the answer to ProbeReceive: the message, which may be empty. Errors: EBADFD for a descriptor that is none
// of O_PATH, a pipe and a memfd, with which the stub ends; EPIPE for the socket's end; EMSGSIZE for a message that is too long;
// others of the kernel's; ErrReport.
func Received(b []byte) ([]byte, error) {
	if len(b) < ProbedSize {
		return nil, ErrReport
	}
	switch n := int32(binary.LittleEndian.Uint32(b)); {
	case n < 0:
		return nil, syscall.Errno(-n)
	case n > 0:
		return nil, ErrReport
	}
	return b[ProbedSize:], nil
}

// Closing says of an answer whether an empty Probed follows it, once the stub has closed its own copies of what it passed on. It
// must have come before the next question.
func Closing(b []byte) bool { return len(b) >= ProbedSize && binary.LittleEndian.Uint32(b[64:]) != 0 }

// ReadProbed decodes the answer to a Probe. Errors: the kernel's error number, or ErrReport.
func ReadProbed(b []byte) (Probed, error) {
	if more, err := Received(b); err != nil || len(more) > 0 {
		return Probed{}, cmp.Or(err, ErrReport)
	}
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	return Probed{
		Mode: u32(4), UID: u32(8), GID: u32(12), Dev: unix.Mkdev(u32(16), u32(20)), Ino: u64(24),
		FSType: int64(u64(32)), FSFlags: u64(40), FreeBytes: int64(u64(48)), FreeFiles: int64(u64(56)),
	}, nil
}

// A Kind is what a Report reports.
type Kind uint32

// The kinds, in the order in which they come.
const (
	Hello        Kind = iota + 1 // the stub runs
	Ready                        // the slot's steps are done
	Terminal                     // comes with the master of the job's terminal
	Started                      // the program was executed; if the plan asks for it
	Failed                       // Step met Errno; the stub is gone
	Exited                       // Status is the first process's, others are still being ended
	DeadlineOver                 // the stub's own deadline
	Gone                         // no process of the job is left; Status as with Exited
)

// Report is what a stub says.
type Report struct {
	Kind   Kind
	Errno  uint32
	Status uint32 // as wait(2) gives it
	Step   string
}

// ErrReport is a report that is not of this version's shape.
var ErrReport = errors.New("a stub said what is no report")

// ReadReport decodes what a stub sent. Step is cut at the first NUL and holds only letters, digits and dashes: the
// stub is the jail's, so the supervisor takes its word for the job's status but shows nothing unchecked.
func ReadReport(b []byte) (Report, error) {
	if len(b) != reportSize || binary.LittleEndian.Uint32(b) != planVersion {
		return Report{}, ErrReport
	}
	r := Report{
		Kind:   Kind(binary.LittleEndian.Uint32(b[4:])),
		Errno:  binary.LittleEndian.Uint32(b[8:]),
		Status: binary.LittleEndian.Uint32(b[12:]),
	}
	for _, c := range b[16 : 16+stepSize] {
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			break
		}
		r.Step += string(rune(c))
	}
	if r.Kind < Hello || r.Kind > Gone {
		return Report{}, ErrReport
	}
	return r, nil
}

// A request of the supervisor to the init is a number and what is asked for; the answer is the number and an errno, with
// one descriptor when it is 0.
const requestSize = 12

// What is asked of the init.
const (
	// AskSlot comes with the stub's socket and, where there is a unified cgroup hierarchy, the job's cgroup directory. The
	// answer has a pidfd of the stub.
	AskSlot = iota
	// AskOverlay comes with two detached mounts: what is below, and a directory with upper and work in it. The answer has a
	// detached mount of the two, merged.
	AskOverlay
)

// AppendRequest encodes a request, or the answer to one: then word is an errno.
func AppendRequest(number, word uint32) []byte {
	b := make([]byte, requestSize)
	binary.LittleEndian.PutUint32(b, planVersion)
	binary.LittleEndian.PutUint32(b[4:], number)
	binary.LittleEndian.PutUint32(b[8:], word)
	return b
}

// ReadRequest decodes a request or an answer.
func ReadRequest(b []byte) (number, word uint32, err error) {
	if len(b) != requestSize || binary.LittleEndian.Uint32(b) != planVersion {
		return 0, 0, errors.New("a message with the jail's init that is none")
	}
	return binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:]), nil
}
