package job

import "fmt"

// A Protection says which sensitive paths of a repository a job finds read-only: of those that are there when it starts,
// at the root and in the nested repositories. What a job makes anew is named in its result.
type Protection uint8

const (
	// ProtectNone leaves all to the job. It is the zero value.
	ProtectNone Protection = iota
	// ProtectHooks keeps what makes tools of the host run code, or behave differently: git's hooks and configuration, the
	// settings of agents, editors and shells. A job can still commit.
	ProtectHooks
	// ProtectAll keeps these and all of each git directory. A job cannot commit.
	ProtectAll
)

// String returns the word that command lines and configuration use.
func (p Protection) String() string {
	switch p {
	case ProtectHooks:
		return "hooks"
	case ProtectAll:
		return "all"
	}
	return "none"
}

// ParseProtection reads the word that String writes.
func ParseProtection(s string) (Protection, error) {
	switch s {
	case "none", "":
		return ProtectNone, nil
	case "hooks":
		return ProtectHooks, nil
	case "all":
		return ProtectAll, nil
	}
	return ProtectNone, fmt.Errorf("protection %q is not known: none, hooks or all", s)
}
