package isolate

import (
	"fmt"

	"corral/isolate/wire"
	"corral/job"
	"corral/seccomp"
)

// writes says whether the job writes to the repository itself.
func (r *Request) writes() bool {
	return r.Flags&(wire.FlagReadOnly|wire.FlagOverlay|wire.FlagNoRepo) == 0
}

// narrow makes a request to write to the repository one to read it. What works on a session's layer cannot do without.
func (r *Request) narrow() bool {
	if r.Tool != string(job.ToolNone) {
		return false
	}
	r.Flags = r.Flags&^(wire.FlagProtectHooks|wire.FlagProtectAll) | wire.FlagReadOnly
	r.narrowed = true
	return true
}

// workDir is the job's working directory: relative to the repository, or absolute.
func (r *Request) workDir() string {
	if r.Flags&wire.FlagNoRepo != 0 {
		return job.NoRepoDir
	}
	return r.Dir
}

// checkSessionless refuses what a job without a session cannot have.
func (s *Supervisor) checkSessionless(q *Request) error {
	const (
		protects = wire.FlagProtectHooks | wire.FlagProtectAll
		others   = wire.FlagReadOnly | wire.FlagOverlay | protects | wire.FlagCommon
	)
	noRepo := q.Flags&wire.FlagNoRepo != 0
	switch tool := job.Tool(q.Tool); {
	case noRepo && (q.Flags&others != 0 || q.Common != ""):
		return workspaceRefusal("workspace none is no other workspace, and has nothing in it to protect")
	case noRepo && q.Dir != "" && q.Dir != ".":
		return &job.Refusal{Step: "cwd", Message: fmt.Sprintf("a job that sees no repository works in %s, and in no directory of the repository", job.NoRepoDir)}
	case q.Flags&wire.FlagOverlay != 0:
		return workspaceRefusal("workspace overlay takes a session, whose layer is written to")
	case tool == job.ToolStarlark:
		return s.checkStarlark(q)
	case tool != job.ToolNone:
		return sessionRefusal("%.40q works on the layer of a session", q.Tool)
	}
	return nil
}

func workspaceRefusal(message string) error { return &job.Refusal{Step: "workspace", Message: message} }

// checkStarlark refuses a program in Starlark that is not run as each of them is: with no repository, terminal, or profile but
// the strictest.
func (s *Supervisor) checkStarlark(q *Request) error {
	strictest := strictest()
	switch {
	case q.Flags&wire.FlagNoRepo == 0:
		return workspaceRefusal(fmt.Sprintf("tool %q sees no repository: its workspace is none", job.ToolStarlark))
	case q.Flags&wire.FlagTerminal != 0:
		return &job.Refusal{Step: "request", Message: fmt.Sprintf("tool %q has no terminal", job.ToolStarlark)}
	case q.Profile != "" && q.Profile != strictest:
		return &job.Refusal{Step: "profile", Message: fmt.Sprintf("tool %q has profile %q, not %q", job.ToolStarlark, strictest, q.Profile)}
	case s.programs.starlark == nil:
		return &job.Refusal{
			Step: "tool", Message: starlarkProgram + " is not installed: no program in Starlark can be run",
			Hint: "install it beside corrald, owned by root, and start corrald anew",
		}
	}
	return nil
}

// strictest is the profile that allows least.
func strictest() string {
	all := seccomp.Profiles()
	return all[len(all)-1]
}

// profileOf is the profile of a job that is to have the given one, where "" is said by nobody.
func profileOf(q *Request, profile string) string {
	switch {
	case q.Tool == string(job.ToolStarlark):
		return strictest()
	case profile == "":
		return seccomp.Profiles()[0]
	}
	return profile
}
