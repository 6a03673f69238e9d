package inside

// Steps are the names of the confinement's steps in their order, as the stub's tables have them; a test compares. The
// first SlotSteps are done by process 1 before the job is known, the next AheadSteps by process 2, then PlaceSteps by
// process 1 when it is known, the rest by process 2.
var Steps = []string{
	"private-mounts", "cgroups", "cgroup-namespace", "host-name", "loopback", "proc", "proc-masks", "proc-sys", "devpts",
	"private-directories", "home", "accounts", "toolchains", "root", "bounding-set", "dispositions",
	"session", "identity", "keyring", "capabilities", "no-new-privs", "landlock-rules", "seccomp",
	"tmp-size", "common", "repo", "protect", "layer", "terminal",
	"stdio", "payload", "files", "rlimits", "cwd", "landlock", "descriptors", "modes", "openat2", "exec",
}

// How many of Steps belong to the first three phases.
const (
	SlotSteps  = 16
	AheadSteps = 7
	PlaceSteps = 6
)

// Step returns the bit of Prepare.Skip for a step's name, or 0 when there is none of that name.
func Step(name string) uint64 {
	for i, s := range Steps {
		if s == name {
			return 1 << i
		}
	}
	return 0
}
