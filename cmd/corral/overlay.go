package main

import (
	"context"
	"fmt"
	"path/filepath"

	"corral/job"
)

// enter puts the job into its session: the one that the command line names, or a new one for workspace overlay. leave
// closes a session that enter opened. The changes behind the overlay are then kept under the session's id.
func (o *runOptions) enter(c job.Sessions) (leave func() error, err error) {
	nothing := func() error { return nil }
	switch {
	case o.spec.Session != "":
		return nothing, o.join(c)
	case o.named != "":
		return nothing, o.joinNamed(c)
	case o.spec.Workspace != job.Overlay && !o.home:
		return nothing, nil
	}
	s, err := c.OpenSession(context.Background(), job.SessionSpec{
		Repo: o.spec.Repo, Profile: o.spec.Profile, Workspace: o.spec.Workspace, Network: o.spec.Network, Share: o.home,
		// The job's limits on the repository apply to the session's layer here.
		Disk: max(o.spec.Limits.Disk, 0), Inodes: max(o.spec.Limits.Inodes, 0),
	})
	if err != nil {
		return nil, err
	}
	o.spec.Session = s.ID
	return func() error {
		if o.closed {
			return nil
		}
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

// join copies the workspace and repository of the named session into the job, which must have the same.
func (o *runOptions) join(c job.Sessions) error {
	s, err := job.FindSession(context.Background(), c, o.spec.Session, true)
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
	if !s.Root && filepath.IsAbs(o.spec.Dir) {
		o.spec.Dir, err = relative(o.spec.Dir, s.Repo, s.Repo)
	}
	return err
}
