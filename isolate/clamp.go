package isolate

import (
	"fmt"
	"time"

	"corral/job"
)

// requestedLimits returns the limits set in the request.
func requestedLimits(q *Request) job.Limits {
	return job.Limits{
		Memory: q.Memory, MilliCPUs: q.MilliCPUs, PIDs: q.PIDs, Wall: time.Duration(q.Wall), Tmp: q.Tmp, TmpInodes: q.TmpInodes,
		Disk: q.Disk, Inodes: q.Inodes, FileSize: q.FileSize, OpenFiles: q.OpenFiles,
	}
}

// clampEntry applies every configuration entry for the directory at path to a request, and returns the job's limits
// and profile. A limit that the request left open is lowered to the entry's ceiling, and a writing job gets a
// readonly directory read-only; everything else that was requested and is not allowed is refused.
func (c *Config) clampEntry(path string, q *Request, limits job.Limits) (job.Limits, string, error) {
	profile := q.Profile
	for _, r := range c.Repos {
		if r.Path != path {
			continue
		}
		if r.ReadOnly && q.writes() && !q.narrow() {
			return limits, "", &job.Refusal{
				Step: "workspace", Message: fmt.Sprintf("changes cannot be applied to %q: its workspace is readonly", path),
				Hint: "change the entry's workspace in the supervisor's configuration",
			}
		}
		if r.Overlay && q.writes() && q.Tool != string(job.ToolChanges) {
			return limits, "", &job.Refusal{
				Step: "workspace", Message: fmt.Sprintf("jobs can write to %q only through a session's layer: its workspace is overlay", path),
				Hint: "request workspace overlay, or change the entry's workspace in the supervisor's configuration",
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
func (r *Repo) clamp(q *Request, limits job.Limits, profile string) (job.Limits, string, error) {
	if err := requestedLimits(q).Within(r.Ceilings); err != nil {
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

// clampLimits applies the configuration entries of a repository and, for a worktree, those of its git directory.
// For the git directory only ceilings and profile apply: if the operator forbids writing to it, it is mounted
// read-only instead, see addCommon.
func (c *Config) clampLimits(repo *repo, q *Request, limits job.Limits) (job.Limits, string, error) {
	if repo.readOnly && q.writes() && !q.narrow() {
		return limits, "", &job.Refusal{
			Step: "workspace", Message: fmt.Sprintf("changes cannot be applied to %q: it was passed from a read-only mount", repo.path),
			Hint: "open the session from a mount through which the repository is writable",
		}
	}
	limits, profile, err := c.clampEntry(repo.path, q, limits)
	if err != nil || repo.common == nil {
		return limits, profile, err
	}
	for _, r := range c.ofCommon(repo.common.path) {
		if limits, profile, err = r.clamp(q, limits, profile); err != nil {
			return limits, "", err
		}
	}
	return limits, profile, nil
}
