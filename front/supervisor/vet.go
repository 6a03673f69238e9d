package supervisor

import (
	"fmt"
	"log/slog"

	"corral/internal/config"
	"corral/internal/directory"
	"corral/internal/text"
	"corral/job"
)

// A restriction says which repositories requests may name.
type restriction struct {
	owners map[string]uint32       // required owner of each repository, by path
	vet    func(repo string) error // see client.Client.Vet
}

// Restrict restricts requests to the repositories of the configuration, which must belong to the owners it names. Call it
// before the first job. A later call replaces the restriction for the requests that come from then on.
func (s *Connection) Restrict(c config.Config, files []string, log *slog.Logger) {
	s.limits.Store(&restriction{Owners(c.Repos), vetting(c, files, log)})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client.Vet == nil { // a client that is in use reads the fields without a lock
		s.client.Owner, s.client.Vet = s.owner, s.vet
	}
}

func (s *Connection) owner(path string) (uid uint32, known bool) {
	if r := s.limits.Load(); r != nil {
		uid, known = r.owners[path]
	}
	return uid, known
}

func (s *Connection) vet(repo string) error {
	if r := s.limits.Load(); r != nil {
		return r.vet(repo)
	}
	return nil
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

// unsafeRepos returns the repositories that overlap others, and those that hold a configuration file or a link to one, by path,
// with the reason.
func unsafeRepos(c config.Config, files []string) map[string]error {
	refused := map[string]error{}
	var paths []string
	trails := map[string][]string{}
	for _, file := range files {
		if file, err := directory.Absolute(file); err == nil {
			paths, trails[file] = append(paths, file), directory.Trail(file)
		}
	}
	for i, a := range c.Repos {
		for _, b := range c.Repos[i+1:] {
			if a.Path != b.Path && directory.Overlap(a.Path, b.Path) {
				refused[a.Path], refused[b.Path] = overlaps(b), overlaps(a)
			}
		}
		for _, file := range paths {
			if directory.Passes(file, trails[file], a.Path) && c.For(a).Workspace != job.ReadOnly {
				refused[a.Path] = fmt.Errorf("it contains this server's configuration, %s, or a link on the way to it: jobs could write it", text.Quote(file))
			}
		}
	}
	return refused
}

// vetting returns a function that refuses repositories that overlap, because jobs in one could replace the other, and
// repositories that contain one of this front-end's configuration files, or a link that leads to one, because jobs could write
// to it. Both are logged; the others are served.
func vetting(c config.Config, files []string, log *slog.Logger) func(string) error {
	refused := unsafeRepos(c, files)
	for path, why := range refused {
		log.Warn("repository not served", "path", path, "reason", why)
	}
	served := map[string]bool{}
	for _, r := range c.Repos {
		served[r.Path] = true
	}
	return func(repo string) error {
		if !served[repo] {
			return &job.Refusal{
				Step: "repo", Message: text.Quote(repo) + " is not served any more: the operator has removed it from the configuration",
			}
		}
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
