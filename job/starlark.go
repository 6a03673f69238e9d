package job

import "time"

// Starlark is the Runtime of a Request whose code is a program in Starlark. It is none of Runtimes: there is no program of
// the host's for it, no arguments and no working directory, but ToolStarlark, which sees its source and its input alone.
const Starlark = "starlark"

// StarlarkGrace is how much longer than its program a job in Starlark may take: the interpreter ends a program at its time
// and says so; what does not let itself be ended is killed so much later.
const StarlarkGrace = 150 * time.Millisecond

// AllRuntimes are Runtimes and Starlark: what the operator can say of runtimes.
func AllRuntimes() []string { return append(Runtimes(), Starlark) }

// StarlarkWall is the time of a program that asked for wall in a job that may take limit: StarlarkGrace less than that, or
// where this leaves little, the half of it.
func StarlarkWall(wall, limit time.Duration) time.Duration {
	return max(min(wall, max(limit-StarlarkGrace, limit/2)), time.Millisecond)
}
