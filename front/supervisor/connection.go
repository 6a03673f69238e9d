// Package supervisor connects front-ends to corrald, or starts one for a front-end of root.
//
// It finds and opens the directories in which front-ends keep the output of jobs and indexes over it.
//
// A front-end with a supervisor of its own uses a directory that the supervisor makes for each user; any other uses one in
// the user's home directory.
package supervisor

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"corral/isolate/client"
	"corral/isolate/wire"
	"corral/job"
)

// A Connection is a server's connection to corrald. If corrald ends and starts again, the next call connects to it
// again. Calls that were in progress are never repeated: how far they came is unknown.
type Connection struct {
	dial   func() (*client.Client, error) // nil for an embedded supervisor, which cannot be restarted
	finish func()                         // ends an embedded supervisor; nil for another
	limits atomic.Pointer[restriction]    // see Restrict; nil restricts nothing

	mu     sync.Mutex
	client *client.Client // guarded by mu
	closed bool           // guarded by mu
}

// Client returns a connection that is open as far as is known, connecting again if necessary.
func (s *Connection) Client() (*client.Client, error) {
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
	next.Owner, next.Vet = s.owner, s.vet
	_ = s.client.Close()
	s.client = next
	return next, nil
}

// ask calls f with an open connection.
func ask[T any](s *Connection, f func(*client.Client) (T, error)) (none T, err error) {
	c, err := s.Client()
	if err != nil {
		return none, err
	}
	return f(c)
}

// tell is ask for calls that return nothing.
func (s *Connection) tell(f func(*client.Client) error) error {
	c, err := s.Client()
	if err != nil {
		return err
	}
	return f(c)
}

// Run implements job.Runner.
func (s *Connection) Run(ctx context.Context, spec job.Spec, stdio job.Stdio) (job.Result, error) {
	c, err := s.Client()
	if err != nil {
		for _, f := range []*os.File{stdio.Stdin, stdio.Stdout, stdio.Stderr} {
			_ = f.Close()
		}
		return job.Result{}, err
	}
	return c.Run(ctx, spec, stdio)
}

// Denied implements job.Auditor.
func (s *Connection) Denied(ctx context.Context, claim job.Claim, spec job.Spec) error {
	return s.tell(func(c *client.Client) error { return c.Denied(ctx, claim, spec) })
}

// List lists the running jobs of this user, or all of an embedded supervisor.
func (s *Connection) List(commands bool) ([]wire.Entry, error) {
	return ask(s, func(c *client.Client) ([]wire.Entry, error) {
		if commands {
			return c.ListCommands()
		}
		return c.List()
	})
}

// Denials lists the requests of this user that were denied or refused lately.
func (s *Connection) Denials() ([]wire.Denial, error) {
	return ask(s, (*client.Client).Denials)
}

// Kill ends a running job of this user by its id.
func (s *Connection) Kill(id string) error {
	return s.tell(func(c *client.Client) error { return c.Kill(id) })
}

// Close closes the connection, which ends all jobs of this server. It ends an embedded supervisor.
func (s *Connection) Close() {
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

// Ready returns why no job can be run now, or nil if one can as far as is known.
func (s *Connection) Ready() error {
	_, err := s.Client()
	return err
}

// CheckRepo returns why the supervisor does not serve the directory with that workspace, or nil if it does.
func (s *Connection) CheckRepo(ctx context.Context, path string, w job.Workspace) error {
	return s.tell(func(c *client.Client) error { return c.CheckRepo(ctx, path, w) })
}

// State opens the directory in which this user's front-ends keep their state. An embedded supervisor creates the
// directory, because the user that this process became may have no home directory. The caller closes it.
func (s *Connection) State() (*os.File, error) {
	if s.finish == nil {
		return OpenUserState()
	}
	return ask(s, func(c *client.Client) (*os.File, error) { return c.State(uint32(os.Getuid())) })
}

// OpenSession implements job.Sessions.
func (s *Connection) OpenSession(ctx context.Context, spec job.SessionSpec) (job.Session, error) {
	return ask(s, func(c *client.Client) (job.Session, error) { return c.OpenSession(ctx, spec) })
}

// CloseSession implements job.Sessions.
func (s *Connection) CloseSession(ctx context.Context, id string, keep bool) (bool, error) {
	return ask(s, func(c *client.Client) (bool, error) { return c.CloseSession(ctx, id, keep) })
}

// ListSessions implements job.Sessions.
func (s *Connection) ListSessions(ctx context.Context) ([]job.Session, error) {
	return ask(s, func(c *client.Client) ([]job.Session, error) { return c.ListSessions(ctx) })
}
