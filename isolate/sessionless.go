package isolate

import (
	"fmt"

	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
	"corral/seccomp"
)

// writes reports whether the job may write to the repository itself.
func (r *Request) writes() bool {
	return r.Flags&(wire.FlagReadOnly|wire.FlagOverlay|wire.FlagNoRepo) == 0
}

// narrow turns a request to write to the repository into one to read it. It returns false for tools, which need to
// write.
func (r *Request) narrow() bool {
	if r.Tool != string(job.ToolNone) {
		return false
	}
	r.Flags = r.Flags&^(wire.FlagProtectHooks|wire.FlagProtectAll) | wire.FlagReadOnly
	r.narrowed = true
	return true
}

// workDir returns the job's working directory: relative to the repository, or absolute.
func (r *Request) workDir() string {
	if r.Flags&wire.FlagNoRepo != 0 {
		return job.NoRepoDir
	}
	return r.Dir
}

// checkSessionless refuses what is possible only in a session.
func (s *Supervisor) checkSessionless(q *Request) error {
	const (
		protects = wire.FlagProtectHooks | wire.FlagProtectAll
		others   = wire.FlagReadOnly | wire.FlagOverlay | protects | wire.FlagCommon
	)
	noRepo := q.Flags&wire.FlagNoRepo != 0
	switch tool := job.Tool(q.Tool); {
	case noRepo && (q.Flags&others != 0 || q.Common != ""):
		return workspaceRefusal("workspace none cannot be combined with another workspace, protection or a git directory")
	case noRepo && q.Dir != "" && q.Dir != ".":
		return &job.Refusal{Step: "cwd", Message: fmt.Sprintf("a job without a repository has the working directory %s and cannot choose another", job.NoRepoDir)}
	case q.Flags&wire.FlagOverlay != 0:
		return workspaceRefusal("workspace overlay requires a session")
	case tool == job.ToolStarlark:
		return s.checkStarlark(q)
	case tool != job.ToolNone:
		return sessionRefusal("tool %.40q requires a session", q.Tool)
	}
	return nil
}

func workspaceRefusal(message string) error { return &job.Refusal{Step: "workspace", Message: message} }

// checkStarlark refuses a Starlark program that does not run as all of them do: without a repository and a terminal,
// with the strictest profile.
func (s *Supervisor) checkStarlark(q *Request) error {
	strictest := strictest()
	switch {
	case q.Flags&wire.FlagNoRepo == 0:
		return workspaceRefusal(fmt.Sprintf("tool %q requires workspace none", job.ToolStarlark))
	case q.Flags&wire.FlagTerminal != 0:
		return &job.Refusal{Step: "request", Message: fmt.Sprintf("tool %q cannot have a terminal", job.ToolStarlark)}
	case q.Profile != "" && q.Profile != strictest:
		return &job.Refusal{Step: "profile", Message: fmt.Sprintf("tool %q must use profile %q, got %q", job.ToolStarlark, strictest, q.Profile)}
	case s.programs.Starlark == nil:
		return &job.Refusal{
			Step: "tool", Message: host.StarlarkProgram + " is not installed: Starlark programs cannot be run",
			Hint: "install it beside corrald, owned by root, and restart corrald",
		}
	}
	return nil
}

// strictest returns the profile that allows the fewest system calls.
func strictest() string {
	all := seccomp.Profiles()
	return all[len(all)-1]
}

// profileOf returns the job's profile, given the one that was requested or configured; "" is neither.
func profileOf(q *Request, profile string) string {
	switch {
	case q.Tool == string(job.ToolStarlark):
		return strictest()
	case profile == "":
		return seccomp.Profiles()[0]
	}
	return profile
}
