package policy

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"corral/job"
)

// Bounds of a client's command and environment. The kernel's own are lower (execve(2): a quarter of the stack, 2
// MiB); these keep commands that could never run out of the audit log and the operator's rules.
const (
	maxWords = 10_000  // arguments, and variables
	maxBytes = 2 << 20 // of all of them together
)

func (c *chain) isCommand() bool { return len(c.r.Command) > 0 }

// builtin denies a program of corral's own that a client cannot request, or that could not run.
func (c *chain) builtin() []string {
	switch r := c.r; {
	case r.Builtin == job.ToolNone:
		return nil
	case !r.Builtin.OnFiles():
		return []string{fmt.Sprintf("Program %q cannot be requested", r.Builtin)}
	case r.Root || r.Terminal != (job.Size{}):
		return []string{fmt.Sprintf("Program %q has no terminal, and no root file system of its own", r.Builtin)}
	}
	return nil
}

// commandWords denies a command that cannot be executed.
func commandWords(c *chain) []string {
	total := 0
	for i, word := range c.r.Command {
		if strings.IndexByte(word, 0) >= 0 {
			return []string{fmt.Sprintf("Argument %d contains a NUL byte", i)}
		}
		total += len(word) + 1
	}
	if len(c.r.Command) > maxWords || total > maxBytes {
		return []string{fmt.Sprintf("Arguments: %d with %d bytes in total; the maximum is %d, and %d bytes", len(c.r.Command), total,
			maxWords, maxBytes)}
	}
	return nil
}

// allowedCommand checks a command's program, which is looked up in the job's own PATH, against the list of
// executables, if there is one. A name on the list allows only programs that no file of a repository can pose as.
func allowedCommand(c *chain) []string {
	list, program := c.p.rules.Executables, c.r.Command[0]
	if list == nil || c.r.Builtin != job.ToolNone { // corral's own program is not one of the host
		return nil
	}
	var ok bool
	switch _, elsewhere := c.r.Env["PATH"]; {
	case filepath.IsAbs(program):
		ok = slices.Contains(list, program) ||
			slices.Contains(list, filepath.Base(program)) && slices.Contains(filepath.SplitList(c.path()), filepath.Dir(program))
	case !strings.Contains(program, "/"):
		ok = slices.Contains(list, program) && !elsewhere
	}
	if !ok {
		return []string{fmt.Sprintf("Executable %q is not in the allowed executables list", program)}
	}
	return nil
}

// askedEnv denies client variables that cannot be passed to a program.
func (c *chain) askedEnv() []string {
	total := 0
	for name, value := range c.r.Env {
		total += len(name) + 2
		if value != nil {
			total += len(*value)
		}
	}
	if len(c.r.Env) > maxWords || total > maxBytes {
		return []string{fmt.Sprintf("Environment: %d variables with %d bytes in total; the maximum is %d, and %d bytes", len(c.r.Env), total, maxWords, maxBytes)}
	}
	var reasons []string
	for _, name := range sortedNames(c.r.Env) {
		value := c.r.Env[name]
		if checkNames([]string{name}) != nil || value != nil && strings.IndexByte(*value, 0) >= 0 {
			reasons = append(reasons, fmt.Sprintf("Environment variable %.100q cannot be set", name))
		}
	}
	return reasons
}

// rootWorkspace returns the access to the repository of a request with a root file system of its own.
func (r Repo) rootWorkspace() job.Workspace {
	switch {
	case r.Workspace == job.ReadOnly:
		return job.ReadOnly
	case r.RootWorkspace != nil:
		return *r.RootWorkspace
	}
	return job.Overlay
}

// narrowerWorkspace applies the client's choice of workspace. It denies writing to a repository that is configured as
// read-only.
func narrowerWorkspace(_ context.Context, c *chain) []string {
	if c.isStarlark() {
		return c.starlarkWorkspace()
	}
	if c.r.Workspace == nil {
		return nil
	}
	switch wanted := *c.r.Workspace; {
	case wanted == job.ReadOnly, wanted == job.NoRepo:
		c.workspace = wanted
	case c.workspace == job.ReadOnly:
		return []string{fmt.Sprintf("Workspace %q is refused: the repository is configured as %q", wanted, job.ReadOnly)}
	case wanted == job.Overlay:
		c.workspace = job.Overlay
	}
	return nil
}

// access returns what the job may do to the repository: less than the other jobs of its session, or as much.
func (c *chain) access() job.Workspace {
	if c.r.ReadOnly && c.workspace != job.NoRepo {
		return job.ReadOnly
	}
	return c.workspace
}

// protect returns the protection that applies if the workspace is Direct.
func (c *chain) protect() job.Protection { return max(c.r.Protect, c.repo.Protect) }
