// Package inside is the code that runs inside a jail and its protocol: the messages between the supervisor and the stub
// that becomes a job, and the jail's init, process 1 of the jail, which starts stubs.
//
// The steps of a job's confinement are in the four tables in cmd/corral-init/stub (slot_steps, ahead_steps, place_steps,
// confine_steps), each with its reason; Steps lists their names, with which errors are reported.
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

// Layout of the messages, the same as in cmd/corral-init/stub/plan.h; a test compares the two.
const (
	planVersion  = 8
	pathSize     = 4096
	planStrings  = 3
	stepSize     = 24
	rlimits      = 16
	prepareSize  = 64
	bindSize     = 4168
	bindSource   = 8
	bindTarget   = 72
	planSize     = planPaths + planStrings*pathSize + MaxEnv // maximum
	planSoft     = 40
	planHard     = 168
	planPaths    = 296
	keptSize     = 57352 // maximum
	keptList     = 8
	orderSize    = 16
	ownerSize    = 8
	holderSize   = 4
	probeSize    = probePath + pathSize
	probePath    = 32
	reportSize   = 40
	controlFD    = 3 // in a stub and in the init
	stubFD       = 4 // in the init: the stub's program
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
	planModes    = 1024
	goneLeft     = 16
)

// ProbedSize is the size of an encoded Probed in bytes. A received message follows it.
const ProbedSize = 72

// MaxGroups is the maximum number of cgroups that a stub joins by itself.
const MaxGroups = 4

// Prepare is the first message to a stub: the parameters of a slot. Its descriptors are the compiled seccomp programs and
// Groups tasks files.
type Prepare struct {
	UID       uint32 // the job's user inside the jail; its group has the same number
	OwnUID    uint32 // the number of that user for the job, in a user namespace of its own; 0: it has none, and the number is UID
	OwnGID    uint32 // likewise, of its group
	Below     uint32 // maximum number of user namespaces below that one
	Skip      uint64 // bit set of steps and measures to leave out, see Step: for tests with corral-stub-test; corral-stub refuses it
	TmpBytes  int64  // size of each private directory
	TmpInodes int64
	Last      int // size in bytes of the program that is loaded last, at the end of the programs
	Groups    int // number of cgroups of version 1 that the stub joins, maximum MaxGroups
	Door      DoorKind
	Binds     []Bind // sent after the Prepare, see Bind.Append
	Shares    []Root // sent after Binds, each with its mount as descriptor; Target must exist
	Roots     []Root // sent after Shares, each with its mount as descriptor
}

// Numbers returns the numbers that the job's user and group have for the job.
func (p Prepare) Numbers() (uid, gid uint32) {
	if p.OwnUID == 0 {
		return p.UID, p.UID
	}
	return p.OwnUID, p.OwnGID
}

// A DoorKind says what a slot's network has besides a loopback interface.
type DoorKind uint32

// The kinds of doors.
const (
	NoDoor    DoorKind = iota // nothing
	DoorThere                 // the slot's network namespace is a session's, and has a door
	OpenDoor                  // the stub makes a door, and sends its sockets with a report of kind Door
)

// A Root is a mount that comes as a descriptor, and its mount point. If mounts make up the job's own root, the first one
// has Target "/". Target must be shorter than 4096 bytes.
type Root struct{ Target string }

// Append encodes r.
func (r Root) Append() []byte { return Bind{Target: r.Target}.Append() }

// A Bind is a directory of the jail that is mounted at a second path of the job, over its private directories. Source
// must be shorter than 64 bytes, Target shorter than 4096. If Source is empty, only the directory Target is created.
type Bind struct{ Source, Target string }

// Append encodes b.
func (b Bind) Append() []byte {
	m := make([]byte, bindSize)
	binary.LittleEndian.PutUint32(m, planVersion)
	copy(m[bindSource:bindTarget-1], b.Source)
	copy(m[bindTarget:bindSize-1], b.Target)
	return m
}

// Append encodes p, without its Binds, Shares and Roots.
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
	b = binary.LittleEndian.AppendUint32(b, uint32(p.Last))
	for _, n := range []uint32{uint32(p.Door), p.OwnUID, p.OwnGID, p.Below} {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return b
}

// Rlimit is one resource limit of setrlimit(2): both values in the resource's own unit.
type Rlimit struct {
	Resource   int
	Soft, Hard uint64
}

// Plan is one job for a ready slot. Its descriptors are, in this order: the repository's mount unless NoRepo, the
// payload, stdout and stderr unless Terminal, stdin if Stdin, the program if ExecFD, the layer's mount if Layer, the
// common directory's mount if Common is not "".
type Plan struct {
	Terminal, ReadOnly, Stdin, ExecFD bool
	SayStarted                        bool          // send a report of kind Started
	Layer                             bool          // the layer is mounted at /var/layer
	RootDir                           bool          // Dir is relative to the root, not to the repository
	Kept                              bool          // a Kept follows
	Modes                             bool          // the job cannot open directories to everybody: those above protected paths are writable
	NoRepo                            bool          // nothing is mounted at Repo; requires RootDir
	Wall                              time.Duration // the stub's own deadline; 0: none
	TmpBytes, TmpInodes               int64
	Rows, Cols                        uint16
	Rlimits                           []Rlimit
	Repo                              string // absolute path of the mount, shorter than 4096 bytes
	Dir                               string // relative to Repo, or to the root with RootDir; likewise; "" is "."
	Common                            string // absolute path of the git directory that Repo is a worktree of, likewise; "": none
	// Env are variables, NAME=value without NUL, that the job gets in addition to those of its payload, unless that has one of
	// the same name. What is beyond MaxEnv is left out.
	Env []string
}

// MaxEnv is the maximum size of a plan's Env in bytes, each variable with a NUL.
const MaxEnv = 8192

// Append encodes p.
func (p *Plan) Append() []byte {
	b := make([]byte, planPaths, planPaths+len(p.Repo)+len(p.Dir)+len(p.Common)+planStrings+1)
	flags := uint32(0)
	for flag, on := range map[uint32]bool{
		planTTY: p.Terminal, planReadOnly: p.ReadOnly, planStdin: p.Stdin, planExecFD: p.ExecFD, planStarted: p.SayStarted,
		planLayer: p.Layer, planRootCwd: p.RootDir, planKept: p.Kept, planCommonFD: p.Common != "", planNoRepo: p.NoRepo,
		planModes: p.Modes,
	} {
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
	room := MaxEnv
	for _, v := range p.Env {
		if room -= len(v) + 1; room < 0 {
			break
		}
		b = append(append(b, v...), 0)
	}
	return b
}

// Kept is the list of paths that the job must not change, see scan.KeptAnswer; the stub parses List, which is at most
// MaxKept bytes.
type Kept struct {
	Count uint32
	List  string
}

// MaxKept is the maximum size of a Kept's List in bytes.
const MaxKept = keptSize - keptList

// Copy returns a copy of k to add to; k may be nil.
func (k *Kept) Copy() *Kept {
	if k == nil {
		return &Kept{}
	}
	all := *k
	return &all
}

// Add adds an entry, unless the list would be too long: a Hold of package scan and a path, or Worktree and a directory's absolute path.
func (k *Kept) Add(what byte, path string) {
	if len(k.List)+len(path)+2 <= MaxKept {
		k.Count, k.List = k.Count+1, k.List+string(what)+path+"\x00"
	}
}

// Worktree is for a directory that the stub makes, where the job's root is not read-only, in place of another worktree.
const Worktree = 'w'

// Append encodes k.
func (k Kept) Append() []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, keptList+len(k.List)), planVersion)
	b = binary.LittleEndian.AppendUint32(b, k.Count)
	return append(b, k.List[:min(len(k.List), MaxKept)]...)
}

// Order sends a signal to a running job.
type Order struct {
	Signal   int
	Everyone bool // to every process of the job, not only its first
	Ending   bool // the job is to end: the end of its first process no longer ends the others
}

// Append encodes o.
func (o Order) Append() []byte {
	b := make([]byte, orderSize)
	binary.LittleEndian.PutUint32(b, planVersion)
	binary.LittleEndian.PutUint32(b[4:], uint32(o.Signal))
	if o.Everyone {
		b[8] = 1
	}
	if o.Ending {
		b[12] = 1
	}
	return b
}

// UsersName is the program name under which the stub creates user namespaces for the supervisor.
const UsersName = "users"

// AppendOwner encodes a request to the stub named users for a user namespace that the host's user uid owns. The stub
// releases it on the next message.
func AppendOwner(uid uint32) []byte {
	b := make([]byte, ownerSize)
	binary.LittleEndian.PutUint32(b, planVersion)
	binary.LittleEndian.PutUint32(b[4:], uid)
	return b
}

// ReadHolder decodes the answer to AppendOwner: the id of a process in the new namespace, which has no id mappings yet.
// Errors: the kernel's error number, or ErrReport.
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

// ProbeName is the program name under which the stub examines files for the supervisor.
const ProbeName = "probe"

// A ProbeKind is the operation that a Probe requests.
type ProbeKind uint32

// The kinds of requests.
const (
	ProbeStart   ProbeKind = iota + 1 // become user UID; the first message
	ProbeLook                         // examine the descriptor sent along
	ProbeOpen                         // open Path, relative to the directory sent along or to the root
	ProbeReceive                      // receive a message, with descriptors, from the socket sent along: see Received
	ProbeHold                         // keep the descriptor sent along open; there is no answer
	ProbeClose                        // close all descriptors held
)

// A Probe is a request to the stub named probe. It answers each kind but ProbeHold with a Probed, and ProbeOpen with the
// opened descriptor too.
type Probe struct {
	Kind           ProbeKind
	UID            uint32 // host user id; the group id is the same number
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

// Probed describes a file, from statx(2), and its file system, from fstatfs(2).
type Probed struct {
	Mode, UID, GID uint32
	Dev, Ino       uint64
	FSType         int64  // magic number
	FSFlags        uint64 // ST_RDONLY and others, see statvfs(3)
	FreeBytes      int64
	FreeFiles      int64
}

// Received decodes the answer to ProbeReceive and returns the message, which may be empty. Errors: EBADFD if a descriptor
// is not an O_PATH file, a pipe or a memfd, after which the stub exits; EPIPE if the socket's other end is closed;
// EMSGSIZE if the message is too long; other error numbers of the kernel; ErrReport.
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

// Closing reports whether an answer is followed by an empty Probed, which the stub sends once it has closed its own
// copies of the descriptors passed on. The caller must receive it before it sends the next request.
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

// A Kind is the event that a Report reports.
type Kind uint32

// The kinds, in the order in which they are sent, but for Door.
const (
	Hello        Kind = iota + 1 // the stub is running
	Ready                        // the slot's steps are done
	Terminal                     // comes with the master of the job's terminal
	Started                      // the program was executed; only if Plan.SayStarted
	Failed                       // Step failed with Errno; the stub is gone
	Exited                       // the first process ended with Status; others are still being killed, or end by themselves
	DeadlineOver                 // Plan.Wall has passed
	Gone                         // no process of the job is left; Status as for Exited
	Door                         // only with OpenDoor, before Ready: comes with DoorSockets sockets of the slot's network namespace
)

// DoorSockets is the number of sockets in a door. The first one is for datagrams, and bound to 127.0.0.1:53; the second one,
// DoorListener, listens for streams there: they receive the job's queries for names. The others are for streams, and not
// bound: package egress makes further ones of them.
const DoorSockets = 4

// DoorListener is the index of the listener among the sockets of a door.
const DoorListener = 1

// Report is a message from a stub.
type Report struct {
	Kind   Kind
	Errno  uint32 // of Gone: Full and Left
	Status uint32 // wait status, see wait(2)
	Step   string
}

// Full returns a bit for each directory of rootfs.Private that was full when the job's first process ended, if r is Gone.
func (r *Report) Full() uint8 {
	if r.Kind != Gone {
		return 0
	}
	return uint8(r.Errno & 15)
}

// Left reports that processes which the job had left running were killed when its first process had ended, if r is Gone.
func (r *Report) Left() bool { return r.Kind == Gone && r.Errno&goneLeft != 0 }

// ErrReport is returned for a message of a stub that has the wrong size, version or kind.
var ErrReport = errors.New("malformed message from a stub")

// ReadReport decodes a stub's report. Step is cut at the first byte other than a lower-case letter, digit or dash: the
// stub runs in the jail, so the supervisor accepts the job's status from it but displays nothing unchecked.
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
	if r.Kind < Hello || r.Kind > Door {
		return Report{}, ErrReport
	}
	return r, nil
}

// A request from the supervisor to the init is a number and an operation; the answer is the number and an errno, with one
// descriptor if the errno is 0.
const requestSize = 12

// Operations of the init.
const (
	// AskSlot starts a stub. It comes with the stub's socket and, on a unified cgroup hierarchy, the job's cgroup
	// directory. The answer has a pidfd of the stub.
	AskSlot = iota
	// AskNetSlot is AskSlot for a stub that stays in the init's network namespace, which the jobs of a session share.
	AskNetSlot
	// AskOverlay creates an overlay. It comes with two detached mounts: the lower directory, and a directory that
	// contains upper and work. The answer has a detached mount of the overlay.
	AskOverlay
	// AskConnect4 begins a TCP connection to 127.0.0.1 in the init's network namespace, see ConnectTo. The answer has the
	// socket, whose connection may not be complete. A second answer without a descriptor follows when the init has closed its
	// own copy: the socket may then be passed to a client, who could make the last close of it wait (SO_LINGER, socket(7)).
	AskConnect4
	// AskConnect6 is AskConnect4 for ::1.
	AskConnect6
	// AskSockets asks for a socket on which the kernel lists the sockets of the init's network namespace, see sock_diag(7).
	AskSockets
)

// ConnectTo returns AskConnect4 or AskConnect6 with a port.
func ConnectTo(ask uint32, port uint16) uint32 { return ask | uint32(port)<<portShift }

// portShift is the position of the port in an operation. The other operations have port 0.
const portShift = 16

// AppendRequest encodes a request, in which word is the operation, or the answer to one, in which it is an errno.
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
		return 0, 0, errors.New("malformed message from or to the jail's init")
	}
	return binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:]), nil
}
