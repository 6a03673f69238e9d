package seccomp

// A Verdict is what a profile does with a system call.
type Verdict string

const (
	// Allow lets the call through to the kernel.
	Allow Verdict = "allow"
	// ByArgument lets the call through, except with the arguments of the rule's Condition.
	ByArgument Verdict = "by argument"
	// Refuse returns EPERM: the call needs privileges, or the kernel gives the same answer to users without any.
	Refuse Verdict = "EPERM"
	// Absent returns ENOSYS, as of a kernel that lacks the call. Programs fall back to another one.
	Absent Verdict = "ENOSYS"
)

// A Rule is one system call's line in a profile.
type Rule struct {
	Family    string  // group of calls with the same reason
	Name      string  // as in the kernel's table, e.g. "openat"
	Verdict   Verdict // of this profile
	Reason    string  // one line
	Condition string  // the refused arguments and their errors; empty unless ByArgument
}

// A family is a row of the tables: calls with the same verdict and reason.
type family struct {
	name    string
	verdict Verdict // in every profile
	strict  Verdict // in "strict"; empty: as verdict
	reason  string
	calls   string // names, separated by white space
}
