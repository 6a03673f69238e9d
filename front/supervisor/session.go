package supervisor

import (
	"context"

	"corral/job"
)

// OpenSession implements job.Sessions.
func (s *Connection) OpenSession(ctx context.Context, spec job.SessionSpec) (job.Session, error) {
	c, err := s.Client()
	if err != nil {
		return job.Session{}, err
	}
	return c.OpenSession(ctx, spec)
}

// CloseSession implements job.Sessions.
func (s *Connection) CloseSession(ctx context.Context, id string, keep bool) (bool, error) {
	c, err := s.Client()
	if err != nil {
		return false, err
	}
	return c.CloseSession(ctx, id, keep)
}

// ListSessions implements job.Sessions.
func (s *Connection) ListSessions(ctx context.Context) ([]job.Session, error) {
	c, err := s.Client()
	if err != nil {
		return nil, err
	}
	return c.ListSessions(ctx)
}
