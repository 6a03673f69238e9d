package policy

import (
	"cmp"
	"fmt"
	"time"

	"corral/internal/text"
	"corral/job"
	"corral/lang"
	"corral/starlark"
)

// Starlark says what holds for programs in Starlark, which are requests with the runtime job.Starlark. Their runtime is to
// be among Rules.Runtimes as any other; Rules.Executables are about programs of the host, and their interpreter is none.
type Starlark struct {
	Enabled bool
	Memory  int64 // bytes, of one job; 0 is DefaultStarlarkMemory. A repository's ceiling lowers it
}

// What holds for a program in Starlark where nothing else is said.
const (
	DefaultStarlarkMemory = 256 << 20
	DefaultStarlarkWall   = time.Second
	DefaultStarlarkOutput = 64 << 10
)

// What the interpreter needs for itself.
const (
	minStarlarkPIDs   = 8 // its threads, and the jail's first process
	minStarlarkMemory = 16 << 20
)

// starlarkFile is where the interpreter finds the program.
const starlarkFile = lang.Dir + "/code.star"

// starlarkProfile of system calls is what corrald holds a program to, whatever is said of its repository.
const starlarkProfile = "strict"

func (c *chain) isStarlark() bool { return c.r.Runtime == job.Starlark && !c.isCommand() }

// asStarlark has the chain be one of a program in Starlark, which sees no repository.
func (c *chain) asStarlark() {
	c.workspace = job.NoRepo
	c.repo.Profile = starlarkProfile
	c.repo.Ceilings.Wall = c.repo.StarlarkWall
}

// starlarkWords refuses what a program in Starlark does not have.
func (c *chain) starlarkWords() []string {
	r := c.r
	switch {
	case r.Code == nil:
		return []string{"code is required"}
	case len(*r.Code) > starlark.MaxScript:
		return []string{fmt.Sprintf("The program has %d bytes, more than %d", len(*r.Code), starlark.MaxScript)}
	case len(r.Stdin) > starlark.MaxInput:
		return []string{fmt.Sprintf("The input has %d bytes, more than %d", len(r.Stdin), starlark.MaxInput)}
	case r.Output < 0 || r.Output > starlark.MaxOutput:
		return []string{fmt.Sprintf("Requested output (%d bytes) is not between 1 and %d", r.Output, starlark.MaxOutput)}
	case r.Args != nil || r.Env != nil || r.Streamed || r.Terminal != (job.Size{}) || r.Root || r.Background || r.Protect != job.ProtectNone:
		return []string{"A program in Starlark has an input, and neither arguments, variables, a terminal nor a file system"}
	}
	return nil
}

func (c *chain) starlarkDirectory() []string {
	if c.r.Dir != "" && c.r.Dir != "." {
		return []string{fmt.Sprintf("Relative CWD %q is of no use: a program in Starlark sees no repository", text.Line(c.r.Dir, maxSaid))}
	}
	return nil
}

func (c *chain) starlarkWorkspace() []string {
	if w := c.r.Workspace; w != nil && *w != job.NoRepo {
		return []string{fmt.Sprintf("Workspace %q is refused: a program in Starlark sees no repository", *w)}
	}
	return nil
}

// starlarkTimeout sets the limits. The job's time is the program's and the grace after it: the ceiling is of both.
func (c *chain) starlarkTimeout() []string {
	most := c.repo.StarlarkWall - job.StarlarkGrace
	asked := c.r.Limits.Wall
	if most < time.Millisecond {
		return []string{fmt.Sprintf("Starlark has no time here: the ceiling of %s leaves nothing beside the %s that its interpreter may take to end",
			milliseconds(c.repo.StarlarkWall), milliseconds(job.StarlarkGrace))}
	}
	if asked > most || asked == job.Unlimited {
		return []string{fmt.Sprintf("Requested timeout (%s) exceeds maximum (%s)",
			milliseconds(cmp.Or(asked, DefaultStarlarkWall)), milliseconds(most))}
	}
	own := job.Limits{
		Memory: cmp.Or(c.p.rules.Starlark.Memory, DefaultStarlarkMemory), PIDs: 32, Tmp: 1 << 20, TmpInodes: 64, OpenFiles: 64,
	}
	c.limits = c.r.Limits.Or(own.Or(c.repo.Defaults).Or(job.Defaults()).AtMost(c.repo.Ceilings))
	c.wall = cmp.Or(asked, min(cmp.Or(c.r.Usual.Wall, DefaultStarlarkWall), most))
	c.limits.Wall = c.wall + job.StarlarkGrace
	return nil
}

// starlarkRoom refuses limits with which the interpreter itself would fail, whoever set them: a program would be told of
// a mistake that it has not made.
func (c *chain) starlarkRoom() []string {
	if !c.isStarlark() {
		return nil
	}
	l := c.limits
	switch {
	case l.PIDs != job.Unlimited && l.PIDs < minStarlarkPIDs:
		return []string{fmt.Sprintf("Starlark has no room here: limits leave %d processes, and its interpreter needs %d", l.PIDs, minStarlarkPIDs)}
	case l.Memory != job.Unlimited && l.Memory < minStarlarkMemory:
		return []string{fmt.Sprintf("Starlark has no room here: limits leave %d bytes of memory, and its interpreter needs %d", l.Memory, minStarlarkMemory)}
	}
	return nil
}

// starlarkSpec is the job: the interpreter, which corrald has, with the program as its one file.
func (c *chain) starlarkSpec() job.Spec {
	b := starlark.Bounds{
		Output: int(cmp.Or(c.r.Output, DefaultStarlarkOutput)), Wall: job.StarlarkWall(c.wall, c.limits.Wall), Memory: c.limits.Memory,
	}
	return job.Spec{
		Repo: c.repo.Path, Tool: job.ToolStarlark, Args: starlark.Arguments(b, starlarkFile),
		Files: []job.File{{Path: starlarkFile, Content: *c.r.Code}}, Limits: c.limits, Profile: c.repo.Profile, Workspace: job.NoRepo,
	}
}
