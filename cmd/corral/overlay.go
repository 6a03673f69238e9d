package main

import (
	"context"
	"fmt"

	"corral/job"
)

// enter puts the job into its session: the one that the command line names, or one that is opened for workspace overlay.
// leave ends what was opened. What the job changed behind the overlay is kept then, under the session's id.
func (o *runOptions) enter(c job.Sessions) (leave func() error, err error) {
	nothing := func() error { return nil }
	switch {
	case o.spec.Session != "":
		return nothing, o.join(c)
	case o.spec.Workspace != job.Overlay:
		return nothing, nil
	}
	s, err := c.OpenSession(context.Background(), job.SessionSpec{
		Repo: o.spec.Repo, Profile: o.spec.Profile, Workspace: job.Overlay,
		// Limits of what the job may add to the repository are the layer's here.
		Disk: max(o.spec.Limits.Disk, 0), Inodes: max(o.spec.Limits.Inodes, 0),
	})
	if err != nil {
		return nil, err
	}
	o.spec.Session = s.ID
	return func() error {
		kept, err := c.CloseSession(context.Background(), s.ID, true)
		if err != nil {
			return fmt.Errorf("the changes were not kept: %w", err)
		}
		if kept {
			o.changes = s.ID
		}
		return nil
	}, nil
}

// join fills in what the named session has and a job in it must have.
func (o *runOptions) join(c job.Sessions) error {
	s, err := findSession(c, o.spec.Session)
	if err != nil {
		return err
	}
	o.spec.Session = s.ID
	if !o.workspaceSet {
		o.spec.Workspace = s.Workspace
	}
	if o.spec.Repo == "" {
		o.spec.Repo = s.Repo
	}
	return nil
}
