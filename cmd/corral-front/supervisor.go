package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"corral/internal/config"
	"corral/internal/directory"
	"corral/internal/text"
	"corral/isolate/client"
	"corral/isolate/client/embed"
	"corral/job"
)

// A supervisor is a server's connection to corrald. If corrald ends and starts again, the next call connects to it
// again. Calls that were in progress are never repeated: how far they came is unknown.
type supervisor struct {
	dial   func() (*client.Client, error) // nil for an embedded supervisor, which cannot be restarted
	finish func()                         // ends an embedded supervisor; nil for another
	owners map[string]uint32              // required owner of each repository, by path
	vet    func(repo string) error        // see client.Client.Vet

	mu     sync.Mutex
	client *client.Client // guarded by mu
	closed bool           // guarded by mu
}

// current returns a connection that is open as far as is known, connecting again if necessary.
func (s *supervisor) current() (*client.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("%w: the server is shutting down", job.ErrUnavailable)
	}
	err := s.client.Err()
	switch {
	case err == nil:
		return s.client, nil
	case s.dial == nil:
		return nil, fmt.Errorf("%w\nhint: the server started this supervisor itself: restart the server", err)
	}
	next, err := s.dial()
	if err != nil {
		return nil, err
	}
	next.Owners, next.Vet = s.owners, s.vet
	_ = s.client.Close()
	s.client = next
	return next, nil
}

// Run implements job.Runner.
func (s *supervisor) Run(ctx context.Context, spec job.Spec, stdio job.Stdio) (job.Result, error) {
	c, err := s.current()
	if err != nil {
		for _, f := range []*os.File{stdio.Stdin, stdio.Stdout, stdio.Stderr} {
			_ = f.Close()
		}
		return job.Result{}, err
	}
	return c.Run(ctx, spec, stdio)
}

// Denied implements job.Auditor.
func (s *supervisor) Denied(ctx context.Context, claim job.Claim) error {
	c, err := s.current()
	if err != nil {
		return err
	}
	return c.Denied(ctx, claim)
}

// Close closes the connection, which ends all jobs of this server. It ends an embedded supervisor.
func (s *supervisor) Close() {
	s.mu.Lock()
	s.closed = true
	c := s.client
	s.mu.Unlock()
	if s.finish != nil {
		s.finish()
		return
	}
	_ = c.Close()
}

// ready returns why no job can be run now, or nil if one can as far as is known.
func (s *supervisor) ready() error {
	_, err := s.current()
	return err
}

// checkRepo returns why the supervisor does not serve the directory, or nil if it does.
func (s *supervisor) checkRepo(ctx context.Context, path string) error {
	c, err := s.current()
	if err != nil {
		return err
	}
	return c.CheckRepo(ctx, path)
}

// dialed connects to the supervisor that listens on socket, "" for the default socket.
func dialed(socket string) (*supervisor, error) {
	dial := func() (*client.Client, error) {
		c, err := client.Dial(socket)
		if err != nil {
			return nil, hinted(err, socket)
		}
		return c, nil
	}
	c, err := dial()
	if err != nil {
		return nil, err
	}
	return &supervisor{dial: dial, client: c}, nil
}

// govern restricts requests to the repositories of the configuration, which must belong to the owners it names. Call it
// before the first job.
func (s *supervisor) govern(c config.Config, files []string, log *slog.Logger) {
	s.owners, s.vet = repoOwners(c.Repos), vetting(c, files, log)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client.Owners, s.client.Vet = s.owners, s.vet
}

// repoOwners returns the user that each repository must belong to, by path.
func repoOwners(repos []config.Repo) map[string]uint32 {
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
				refused[a.Path] = fmt.Errorf("it overlaps the repository %s, %s: jobs in one could replace the other", text.Quote(b.ID), text.Quote(b.Path))
				refused[b.Path] = fmt.Errorf("it overlaps the repository %s, %s: jobs in one could replace the other", text.Quote(a.ID), text.Quote(a.Path))
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
			return &job.Refusal{Step: "repo", Message: fmt.Sprintf("%s is not served: %v", text.Quote(repo), why), Hint: "the operator can change it in the configuration"}
		}
		return nil
	}
}

// startSupervisor starts corrald as a child and drops root.
func startSupervisor(o embed.Options) (*supervisor, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	o.Program = filepath.Join(filepath.Dir(exe), "corrald")
	c, finish, err := embed.Start(o)
	if err != nil {
		return nil, err
	}
	return &supervisor{client: c, finish: finish}, nil
}

// state opens the directory in which this user's front-ends keep their state. An embedded supervisor creates the
// directory, because the user that this process became may have no home directory. The caller closes it.
func (s *supervisor) state() (*os.File, error) {
	if s.finish == nil {
		return userState()
	}
	c, err := s.current()
	if err != nil {
		return nil, err
	}
	return c.State(uint32(os.Getuid()))
}
