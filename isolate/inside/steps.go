package inside

import "slices"

// Steps lists the names of the confinement's steps in their order, the same as the stub's tables; a test compares them.
// Process 1 runs the first SlotSteps of them before the job is known, process 2 the next AheadSteps, process 1 the next
// PlaceSteps once the job is known, and process 2 the rest.
var Steps = []string{
	"private-mounts", "cgroups", "cgroup-namespace", "host-name", "loopback", "proc", "socket-settings", "door", "proc-masks", "proc-sys",
	"devpts",
	"mqueue",
	"private-directories", "home", "accounts", "toolchains", "root", "bounding-set", "dispositions",
	"session", "identity", OwnIDs, "keyring", "capabilities", "no-new-privs", "landlock-rules", "seccomp",
	"tmp-size", "worktrees", "common", "repo", "protect", "layer", "terminal",
	"stdio", "payload", "files", "rlimits", "cwd", "landlock", "descriptors", "modes", "openat2", "exec",
}

// Number of Steps in each of the first three phases.
const (
	SlotSteps  = 19
	AheadSteps = 8
	PlaceSteps = 7
)

// OwnIDs is the step that fails on hosts that permit no user namespace below a jail's.
const OwnIDs = "own-ids"

// Measures lists what confines a job besides the stub's Steps: the namespaces of its slot, which the init makes, and the
// limits, watches and deadlines of the supervisor. Tests leave them out like Steps; their bits follow those of Steps.
var Measures = []string{
	MountNamespace, PIDNamespace, NetworkNamespace, IPCNamespace, UTSNamespace, NoUserNamespaces,
	MemoryLimit, PIDsLimit, CPULimit, DiskWatch, LockWatch,
	Deadline, StubDeadline, Kill, StubEnd,
}

// The names of Measures.
const (
	MountNamespace   = "mount-namespace"
	PIDNamespace     = "pid-namespace"
	NetworkNamespace = "network-namespace"
	IPCNamespace     = "ipc-namespace"
	UTSNamespace     = "uts-namespace"
	NoUserNamespaces = "no-user-namespaces" // user.max_user_namespaces of 0
	MemoryLimit      = "memory-limit"       // of the job's cgroup, like the next two
	PIDsLimit        = "pids-limit"
	CPULimit         = "cpu-limit"
	DiskWatch        = "disk-watch"    // meter.WatchDisk
	LockWatch        = "lock-watch"    // meter.LockWatch
	Deadline         = "deadline"      // the supervisor's timer
	StubDeadline     = "stub-deadline" // Plan.Wall
	Kill             = "kill"          // of the processes in the job's cgroup
	StubEnd          = "stub-end"      // the stub exits when the supervisor closes its socket
)

// Step returns the bit of Prepare.Skip for the step or measure called name, or 0 if there is none.
func Step(name string) uint64 {
	if i := slices.Index(Steps, name); i >= 0 {
		return 1 << i
	}
	if i := slices.Index(Measures, name); i >= 0 {
		return 1 << (len(Steps) + i)
	}
	return 0
}

// Skips reports whether set, a Prepare.Skip, leaves out the step or measure called name.
func Skips(set uint64, name string) bool { return set != 0 && set&Step(name) != 0 }
