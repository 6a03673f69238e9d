package inside

// Steps lists the names of the confinement's steps in their order, the same as the stub's tables; a test compares them.
// Process 1 runs the first SlotSteps of them before the job is known, process 2 the next AheadSteps, process 1 the next
// PlaceSteps once the job is known, and process 2 the rest.
var Steps = []string{
	"private-mounts", "cgroups", "cgroup-namespace", "host-name", "loopback", "proc", "socket-settings", "proc-masks", "proc-sys", "devpts",
	"private-directories", "home", "accounts", "toolchains", "root", "bounding-set", "dispositions",
	"session", "identity", "keyring", "capabilities", "no-new-privs", "landlock-rules", "seccomp",
	"tmp-size", "common", "repo", "protect", "layer", "terminal",
	"stdio", "payload", "files", "rlimits", "cwd", "landlock", "descriptors", "modes", "openat2", "exec",
}

// Number of Steps in each of the first three phases.
const (
	SlotSteps  = 17
	AheadSteps = 7
	PlaceSteps = 6
)

// Step returns the bit of Prepare.Skip for the step called name, or 0 if there is no such step.
func Step(name string) uint64 {
	for i, s := range Steps {
		if s == name {
			return 1 << i
		}
	}
	return 0
}
