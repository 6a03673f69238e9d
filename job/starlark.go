package job

import "time"

// Starlark is the Runtime of a Request whose code is a Starlark program. It is not one of Runtimes: it needs no
// program of the host and has no arguments and no working directory; ToolStarlark sees only its source and its input.
const Starlark = "starlark"

// StarlarkGrace is the time a Starlark job gets beyond the time of its program: the interpreter stops a program at
// its timeout and reports that; a program that it cannot stop is killed after this grace period.
const StarlarkGrace = 150 * time.Millisecond

// AllRuntimes returns Runtimes and Starlark: the names that the operator can configure.
func AllRuntimes() []string { return append(Runtimes(), Starlark) }

// StarlarkWall returns the time for a program that requested wall in a job that may take limit: at most StarlarkGrace
// less than limit, or half of limit if that is more.
func StarlarkWall(wall, limit time.Duration) time.Duration {
	return max(min(wall, max(limit-StarlarkGrace, limit/2)), time.Millisecond)
}
