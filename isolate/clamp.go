package isolate

import (
	"fmt"
	"time"

	"corral/job"
)

// asked returns the limits that a request names.
func asked(q *Request) job.Limits {
	return job.Limits{
		Memory: q.Memory, MilliCPUs: q.MilliCPUs, PIDs: q.PIDs, Wall: time.Duration(q.Wall), Tmp: q.Tmp, TmpInodes: q.TmpInodes,
		Disk: q.Disk, Inodes: q.Inodes, FileSize: q.FileSize, OpenFiles: q.OpenFiles,
	}
}

// clampEntry holds a request to what the operator said of the directory at path, in every entry that there is for it. What
// was not asked for gives way, and so does writing to a directory that is readonly; all else that was asked for and cannot
// be had is refused. It returns what the job gets.
func (c *Config) clampEntry(path string, q *Request, limits job.Limits) (job.Limits, string, error) {
	profile := q.Profile
	for _, r := range c.Repos {
		if r.Path != path {
			continue
		}
		if r.ReadOnly && q.writes() && !q.narrow() {
			return limits, "", &job.Refusal{
				Step: "workspace", Message: fmt.Sprintf("nothing is applied to %q: its workspace is readonly", path),
				Hint: "have it changed in the supervisor's configuration",
			}
		}
		if r.Overlay && q.writes() && q.Tool != string(job.ToolChanges) {
			return limits, "", &job.Refusal{
				Step: "workspace", Message: fmt.Sprintf("jobs write to %q only on a session's layer: its workspace is overlay", path),
				Hint: "ask for workspace overlay, or have it changed in the supervisor's configuration",
			}
		}
		var err error
		if limits, profile, err = r.bound(q, limits, profile); err != nil {
			return limits, "", err
		}
	}
	return limits, profile, nil
}

// bound holds a request to an entry's ceilings and its profile.
func (r *Repo) bound(q *Request, limits job.Limits, profile string) (job.Limits, string, error) {
	if err := asked(q).Within(r.Ceilings); err != nil {
		return limits, "", err
	}
	limits = limits.AtMost(r.Ceilings)
	if r.Profile == "" || r.Profile == profile {
		return limits, profile, nil
	}
	if profile != "" {
		return limits, "", &job.Refusal{
			Step: "profile", Message: fmt.Sprintf("jobs in %q have profile %q, not %q", r.Path, r.Profile, profile),
			Hint: "ask for this one or for none, or have it changed in the supervisor's configuration",
		}
	}
	return limits, r.Profile, nil
}

// clampLimits is the floor of a repository and of the git directory that it is a worktree of. What the operator said of
// writing to that is no refusal: it is mounted read-only then, see addCommon.
func (c *Config) clampLimits(repo *repo, q *Request, limits job.Limits) (job.Limits, string, error) {
	if repo.readOnly && q.writes() && !q.narrow() {
		return limits, "", &job.Refusal{
			Step: "workspace", Message: fmt.Sprintf("nothing is applied to %q: it was passed from a mount that is read-only", repo.path),
			Hint: "open the session from where the repository can be written",
		}
	}
	limits, profile, err := c.clampEntry(repo.path, q, limits)
	if err != nil || repo.common == nil {
		return limits, profile, err
	}
	for _, r := range c.ofCommon(repo.common.path) {
		if limits, profile, err = r.bound(q, limits, profile); err != nil {
			return limits, "", err
		}
	}
	return limits, profile, nil
}
