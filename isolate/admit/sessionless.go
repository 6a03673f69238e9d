package admit

import (
	"fmt"

	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
	"corral/seccomp"
)

// CheckSessionless refuses what is possible only in a session. starlark reports whether the interpreter is installed.
func CheckSessionless(q *Request, starlark bool) error {
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
		return checkStarlark(q, starlark)
	case tool.OnFiles():
		return CheckEdit(q, false)
	case tool != job.ToolNone:
		return &job.Refusal{Step: "session", Message: fmt.Sprintf("tool %.40q requires a session", q.Tool)}
	}
	return nil
}

func workspaceRefusal(message string) error { return &job.Refusal{Step: "workspace", Message: message} }

// checkStarlark refuses a Starlark program that does not run as all of them do: without a repository and a terminal,
// with the strictest profile.
func checkStarlark(q *Request, installed bool) error {
	strictest := strictest()
	switch {
	case q.Flags&wire.FlagNoRepo == 0:
		return workspaceRefusal(fmt.Sprintf("tool %q requires workspace none", job.ToolStarlark))
	case q.Flags&wire.FlagTerminal != 0:
		return &job.Refusal{Step: "request", Message: fmt.Sprintf("tool %q cannot have a terminal", job.ToolStarlark)}
	case q.Profile != "" && q.Profile != strictest:
		return &job.Refusal{Step: "profile", Message: fmt.Sprintf("tool %q must use profile %q, got %q", job.ToolStarlark, strictest, q.Profile)}
	case !installed:
		return &job.Refusal{
			Step: "tool", Message: host.StarlarkProgram + " is not installed: Starlark programs cannot be run",
			Hint: "install it beside corrald, owned by root, and restart corrald",
		}
	}
	return nil
}

// CheckEdit refuses work on files where there is no repository to edit. root says that the job would have a root file
// system of its session's own.
func CheckEdit(q *Request, root bool) error {
	switch {
	case root:
		return &job.Refusal{Step: "session", Message: fmt.Sprintf("tool %q cannot be used in a session with a root file system of its own", q.Tool)}
	case q.Flags&wire.FlagNoRepo != 0:
		return workspaceRefusal(fmt.Sprintf("tool %q requires a repository", q.Tool))
	case q.Flags&wire.FlagTerminal != 0:
		return &job.Refusal{Step: "request", Message: fmt.Sprintf("tool %q cannot have a terminal", q.Tool)}
	}
	return nil
}

// strictest returns the profile that allows the fewest system calls.
func strictest() string {
	all := seccomp.Profiles()
	return all[len(all)-1]
}

// ProfileOf returns the job's profile, given the one that was requested or configured; "" is neither.
func ProfileOf(q *Request, profile string) string {
	switch {
	case q.Tool == string(job.ToolStarlark):
		return strictest()
	case profile == "":
		return seccomp.Profiles()[0]
	}
	return profile
}
