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

// A supervisor is the connection to one, for the whole life of a server. One that has ended and runs again is connected
// to by the next call. What was under way when it ended is never run a second time: nobody knows how far it came.
type supervisor struct {
	dial   func() (*client.Client, error) // nil: there is no other one
	finish func()                         // ends an embedded one
	owners map[string]uint32              // of repositories, by path
	vet    func(repo string) error        // refuses repositories; see client.Client

	mu     sync.Mutex
	client *client.Client // guarded by mu
	closed bool           // guarded by mu
}

// current returns a connection that has not ended, as far as is known.
func (s *supervisor) current() (*client.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("%w: the server ends", job.ErrUnavailable)
	}
	err := s.client.Err()
	switch {
	case err == nil:
		return s.client, nil
	case s.dial == nil:
		return nil, fmt.Errorf("%w\nhint: it was this server's own: start the server again", err)
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

// Close ends the connection, and with it every job of this server.
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

// ready says why no job can be run now, nil if one can as far as is known.
func (s *supervisor) ready() error {
	_, err := s.current()
	return err
}

// checkRepo says why the supervisor does not serve a directory, nil if it does.
func (s *supervisor) checkRepo(ctx context.Context, path string) error {
	c, err := s.current()
	if err != nil {
		return err
	}
	return c.CheckRepo(ctx, path)
}

// dialed connects to the supervisor that listens on socket.
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

// govern has the supervisor asked for the configuration's repositories alone, which must be whose it says. Call it before
// the first job.
func (s *supervisor) govern(c config.Config, files []string, log *slog.Logger) {
	s.owners, s.vet = repoOwners(c.Repos), vetting(c, files, log)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client.Owners, s.client.Vet = s.owners, s.vet
}

// repoOwners are the users whom repositories must belong to, by path.
func repoOwners(repos []config.Repo) map[string]uint32 {
	owners := map[string]uint32{}
	for _, r := range repos {
		if r.Owner != nil {
			owners[r.Path] = *r.Owner
		}
	}
	return owners
}

// vetting refuses repositories of which one lies in another, whose jobs could replace it, and those that hold a file of this
// front-end's configuration, which their jobs could write. They are named in the log, and the others are served.
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
				refused[a.Path] = fmt.Errorf("it holds this server's configuration, %s, which jobs could write", text.Quote(file))
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

// state opens the directory in which this user's front-ends keep their state. That of an embedded supervisor's is made by
// it: who this process became may have no home.
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
