package policy

import (
	"cmp"
	"fmt"
	"time"

	"corral/internal/text"
	"corral/job"
	"corral/policy/runtimes"
	"corral/policy/starlark"
)

// Starlark configures Starlark programs, which are requests with the runtime job.Starlark. That runtime must be in
// Rules.Runtimes like any other; Rules.Executables does not apply, because the interpreter is not a program of the
// host.
type Starlark struct {
	Enabled bool
	Memory  int64 // bytes, per job; 0 is DefaultStarlarkMemory. A repository's ceiling lowers it
}

// Defaults for a Starlark program.
const (
	DefaultStarlarkMemory = 256 << 20
	DefaultStarlarkWall   = time.Second
	DefaultStarlarkOutput = 64 << 10
)

// The interpreter's own minimum.
const (
	minStarlarkPIDs   = 8 // its threads, and the jail's first process
	minStarlarkMemory = 16 << 20
)

// starlarkFile is the path of the program in the job.
const starlarkFile = runtimes.Dir + "/code.star"

// starlarkProfile is the system call profile that corrald enforces for Starlark, whatever is configured for the
// repository.
const starlarkProfile = "strict"

func (c *chain) isStarlark() bool { return c.r.Runtime == job.Starlark && !c.isCommand() }

// asStarlark adapts the chain to a Starlark program, which has no access to the repository.
func (c *chain) asStarlark() {
	c.workspace = job.NoRepo
	c.repo.Profile = starlarkProfile
	c.repo.Ceilings.Wall = c.repo.StarlarkWall
}

// starlarkWords denies features that Starlark programs do not have.
func (c *chain) starlarkWords() []string {
	r := c.r
	switch {
	case r.Code == nil:
		return []string{"code is required"}
	case len(*r.Code) > starlark.MaxScript:
		return []string{fmt.Sprintf("The program has %d bytes; the maximum is %d", len(*r.Code), starlark.MaxScript)}
	case len(r.Stdin) > starlark.MaxInput:
		return []string{fmt.Sprintf("The input has %d bytes; the maximum is %d", len(r.Stdin), starlark.MaxInput)}
	case r.Output < 0 || r.Output > starlark.MaxOutput:
		return []string{fmt.Sprintf("Requested output (%d bytes) is not between 1 and %d", r.Output, starlark.MaxOutput)}
	case r.Args != nil || r.Env != nil || r.Streamed || r.Terminal != (job.Size{}) || r.Root || r.Background || r.Protect != job.ProtectNone:
		return []string{"A Starlark program has an input, but no arguments, variables, terminal or file system"}
	}
	return nil
}

func (c *chain) starlarkDirectory() []string {
	if c.r.Dir != "" && c.r.Dir != "." {
		return []string{fmt.Sprintf("Relative CWD %q cannot be used: a Starlark program has no access to the repository", text.Line(c.r.Dir, maxSaid))}
	}
	return nil
}

func (c *chain) starlarkWorkspace() []string {
	if w := c.r.Workspace; w != nil && *w != job.NoRepo {
		return []string{fmt.Sprintf("Workspace %q is refused: a Starlark program has no access to the repository", *w)}
	}
	return nil
}

// starlarkTimeout sets the limits. The job's time is the program's time plus the grace period; the ceiling covers
// both.
func (c *chain) starlarkTimeout() []string {
	maximum := c.repo.StarlarkWall - job.StarlarkGrace
	asked := c.r.Limits.Wall
	if maximum < time.Millisecond {
		return []string{fmt.Sprintf("Starlark programs cannot run in this repository: the maximum time of %s does not exceed the interpreter's grace period of %s",
			milliseconds(c.repo.StarlarkWall), milliseconds(job.StarlarkGrace))}
	}
	if asked > maximum || asked == job.Unlimited {
		return []string{fmt.Sprintf("Requested timeout (%s) exceeds maximum (%s)",
			milliseconds(cmp.Or(asked, DefaultStarlarkWall)), milliseconds(maximum))}
	}
	own := job.Limits{
		Memory: cmp.Or(c.p.rules.Starlark.Memory, DefaultStarlarkMemory), PIDs: 32, Tmp: 1 << 20, TmpInodes: 64, OpenFiles: 64,
	}
	c.limits = c.r.Limits.Or(own.Or(c.repo.Defaults).Or(job.Defaults()).AtMost(c.repo.Ceilings))
	c.wall = cmp.Or(asked, min(cmp.Or(c.r.Usual.Wall, DefaultStarlarkWall), maximum))
	c.limits.Wall = c.wall + job.StarlarkGrace
	return nil
}

// starlarkRoom denies limits that are too low for the interpreter itself, whoever set them. Otherwise the failure
// would be reported as an error of the program.
func (c *chain) starlarkRoom() []string {
	if !c.isStarlark() {
		return nil
	}
	l := c.limits
	switch {
	case l.PIDs != job.Unlimited && l.PIDs < minStarlarkPIDs:
		return []string{fmt.Sprintf("The limits are too low for Starlark: %d processes, and its interpreter needs %d", l.PIDs, minStarlarkPIDs)}
	case l.Memory != job.Unlimited && l.Memory < minStarlarkMemory:
		return []string{fmt.Sprintf("The limits are too low for Starlark: %d bytes of memory, and its interpreter needs %d", l.Memory, minStarlarkMemory)}
	}
	return nil
}

// starlarkSpec returns the job: corrald's interpreter, with the program as its only file.
func (c *chain) starlarkSpec() job.Spec {
	b := starlark.Bounds{
		Output: int(cmp.Or(c.r.Output, DefaultStarlarkOutput)), Wall: job.StarlarkWall(c.wall, c.limits.Wall), Memory: c.limits.Memory,
	}
	return job.Spec{
		Repo: c.repo.Path, Tool: job.ToolStarlark, Args: starlark.Arguments(b, starlarkFile),
		Files: []job.File{{Path: starlarkFile, Content: *c.r.Code}}, Limits: c.limits, Profile: c.repo.Profile, Workspace: job.NoRepo,
		Network: job.NoNetwork,
	}
}
