package admit

import (
	"fmt"

	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
)

// clampEntry applies every configuration entry for the directory at path to a request, and returns the job's limits
// and profile. A limit that the request left open is lowered to the entry's ceiling, and a writing job gets a
// readonly directory read-only; everything else that was requested and is not allowed is refused.
func (s *Served) clampEntry(path string, q *Request, limits job.Limits) (job.Limits, string, error) {
	profile := q.Profile
	for _, r := range s.Entries {
		if r.Path != path {
			continue
		}
		if r.ReadOnly && q.Writes() && !q.Narrow() {
			return limits, "", &job.Refusal{
				Step: "workspace", Message: fmt.Sprintf("changes cannot be applied to %q: its workspace is readonly", path),
				Hint: "change the entry's workspace in the supervisor's configuration",
			}
		}
		if r.Overlay && q.Writes() && q.Tool != string(job.ToolChanges) {
			return limits, "", &job.Refusal{
				Step: "workspace", Message: fmt.Sprintf("jobs can write to %q only through a session's layer: its workspace is overlay", path),
				Hint: "request workspace overlay (--workspace overlay, or workspace: overlay in a front-end's own configuration), " +
					"or change the entry's workspace in the supervisor's configuration",
			}
		}
		var err error
		if limits, profile, err = r.clamp(q, limits, profile); err != nil {
			return limits, "", err
		}
	}
	return limits, profile, nil
}

// clamp applies one entry's ceilings and profile to a request.
func (r *Entry) clamp(q *Request, limits job.Limits, profile string) (job.Limits, string, error) {
	if err := q.Limits.Within(r.Ceilings); err != nil {
		return limits, "", err
	}
	limits = limits.AtMost(r.Ceilings)
	if r.Profile == "" || r.Profile == profile {
		return limits, profile, nil
	}
	if profile != "" {
		return limits, "", &job.Refusal{
			Step: "profile", Message: fmt.Sprintf("jobs in %q must use profile %q, got %q", r.Path, r.Profile, profile),
			Hint: "request that profile or none, or change the entry's profile in the supervisor's configuration",
		}
	}
	return limits, r.Profile, nil
}

// Clamp applies the configuration entries of a repository and, for a worktree, those of its git directory.
// For the git directory only ceilings and profile apply: if the operator forbids writing to it, it is mounted
// read-only instead, see addCommon. Limits that this host cannot give a job are refused.
func (s *Served) Clamp(repo *Repo, q *Request, limits job.Limits) (job.Limits, string, error) {
	limits, profile, err := s.clamp(repo, q, limits)
	if err == nil {
		err = host.CheckRlimits(limits)
	}
	return limits, profile, err
}

func (s *Served) clamp(repo *Repo, q *Request, limits job.Limits) (job.Limits, string, error) {
	if repo.ReadOnly && q.Writes() && !q.Narrow() {
		return limits, "", &job.Refusal{
			Step: "workspace", Message: fmt.Sprintf("changes cannot be applied to %q: it was passed from a read-only mount", repo.Path),
			Hint: "open the session from a mount through which the repository is writable",
		}
	}
	limits, profile, err := s.clampEntry(repo.Path, q, limits)
	if err != nil || repo.Common == nil {
		return limits, profile, err
	}
	for _, r := range s.ofCommon(repo.Common.Path) {
		if limits, profile, err = r.clamp(q, limits, profile); err != nil {
			return limits, "", err
		}
	}
	return limits, profile, nil
}

// protects returns the protection that the operator configured for the directory at path.
func (s *Served) protects(path string) job.Protection {
	strongest := job.ProtectNone
	for _, r := range s.Entries {
		if r.Path == path {
			strongest = max(strongest, r.Protect)
		}
	}
	return strongest
}

// Protection returns the protection of sensitive paths for a job: the one it requests, but at least the operator's. A
// job that does not write to the repository needs none.
func (s *Served) Protection(repo *Repo, q *Request) job.Protection {
	strongest := s.protects(repo.Path)
	if repo.Common != nil {
		for _, r := range s.ofCommon(repo.Common.Path) {
			strongest = max(strongest, r.Protect)
		}
	}
	switch {
	case !q.Writes():
		return job.ProtectNone
	case q.Flags&wire.FlagProtectAll != 0:
		return job.ProtectAll
	case q.Flags&wire.FlagProtectHooks != 0:
		return max(strongest, job.ProtectHooks)
	}
	return strongest
}
