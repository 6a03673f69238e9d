package job

import "errors"

// A Protection says which sensitive paths of a repository are read-only for a job. It covers paths that exist when
// the job starts, at the root and in nested repositories; paths that the job creates are reported in its result.
type Protection uint8

const (
	// ProtectNone protects nothing. It is the zero value.
	ProtectNone Protection = iota
	// ProtectHooks protects everything that makes tools on the host run code or behave differently: git hooks and
	// configuration, and the settings of agents, editors and shells. A job can still commit.
	ProtectHooks
	// ProtectAll additionally protects the whole of each git directory. A job cannot commit.
	ProtectAll
)

// String returns the word used on command lines and in the configuration.
func (p Protection) String() string {
	switch p {
	case ProtectHooks:
		return "hooks"
	case ProtectAll:
		return "all"
	}
	return "none"
}

// ParseProtection parses a word returned by String.
func ParseProtection(s string) (Protection, error) {
	switch s {
	case "none", "":
		return ProtectNone, nil
	case "hooks":
		return ProtectHooks, nil
	case "all":
		return ProtectAll, nil
	}
	return ProtectNone, errors.New("must be none, hooks or all")
}
