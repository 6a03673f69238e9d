package supervisor

import (
	"fmt"
	"log/slog"

	"corral/internal/config"
	"corral/internal/directory"
	"corral/internal/text"
	"corral/job"
)

// Restrict restricts requests to the repositories of the configuration, which must belong to the owners it names. Call it
// before the first job.
func (s *Connection) Restrict(c config.Config, files []string, log *slog.Logger) {
	s.owners, s.vet = Owners(c.Repos), vetting(c, files, log)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client.Owners, s.client.Vet = s.owners, s.vet
}

// Owners returns the user that each repository must belong to, by path.
func Owners(repos []config.Repo) map[string]uint32 {
	owners := map[string]uint32{}
	for _, r := range repos {
		if r.Owner != nil {
			owners[r.Path] = *r.Owner
		}
	}
	return owners
}

// vetting returns a function that refuses repositories that overlap, because jobs in one could replace the other, and
// repositories that contain one of this front-end's configuration files, because jobs could write to it. Both are
// logged; the others are served.
func vetting(c config.Config, files []string, log *slog.Logger) func(string) error {
	refused := map[string]error{}
	for i, a := range c.Repos {
		for _, b := range c.Repos[i+1:] {
			if a.Path != b.Path && directory.Overlap(a.Path, b.Path) {
				refused[a.Path], refused[b.Path] = overlaps(b), overlaps(a)
			}
		}
		for _, file := range files {
			if file, err := directory.Absolute(file); err == nil && directory.Within(file, a.Path) && c.For(a).Workspace != job.ReadOnly {
				refused[a.Path] = fmt.Errorf("it contains this server's configuration, %s, which jobs could write", text.Quote(file))
			}
		}
	}
	for path, why := range refused {
		log.Warn("repository not served", "path", path, "reason", why)
	}
	return func(repo string) error {
		if why := refused[repo]; why != nil {
			return &job.Refusal{
				Step: "repo", Message: fmt.Sprintf("%s is not served: %v", text.Quote(repo), why),
				Hint: "the operator can change it in the configuration",
			}
		}
		return nil
	}
}

func overlaps(r config.Repo) error {
	return fmt.Errorf("it overlaps the repository %s, %s: jobs in one could replace the other", text.Quote(r.ID), text.Quote(r.Path))
}
