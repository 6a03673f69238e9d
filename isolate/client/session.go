package client

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"corral/isolate/wire"
	"corral/job"
)

// OpenSession implements job.Sessions.
func (c *Client) OpenSession(ctx context.Context, spec job.SessionSpec) (job.Session, error) {
	a, err := c.askSession(ctx, spec, wire.OpSession, 0)
	if err != nil {
		return job.Session{}, err
	}
	return wire.ReadSession(a.body)
}

// CheckRepo returns nil if the supervisor serves the directory at path, which must be absolute, to this client with the given
// workspace, and otherwise a *job.Refusal. It creates nothing.
func (c *Client) CheckRepo(ctx context.Context, path string, w job.Workspace) error {
	_, err := c.askSession(ctx, job.SessionSpec{Repo: path, Workspace: w}, wire.OpClosed, wire.OpenCheck)
	return err
}

// askSession sends an Open, with flags in addition to those of spec.
func (c *Client) askSession(ctx context.Context, spec job.SessionSpec, want wire.Op, flags uint32) (answer, error) {
	m := wire.Open{
		Flags: flags, Disk: spec.Disk, Inodes: spec.Inodes, Idle: int64(spec.Idle), Repo: spec.Repo, Profile: spec.Profile,
		Name: spec.Name, Image: spec.Image, Import: spec.Import, Network: spec.Network,
	}
	for flag, on := range map[uint32]bool{
		wire.FlagReadOnly: spec.Workspace == job.ReadOnly, wire.FlagOverlay: spec.Workspace == job.Overlay,
		wire.OpenRoot: spec.Root, wire.OpenLasting: spec.Lasting, wire.OpenShare: spec.Share,
	} {
		if on {
			m.Flags |= flag
		}
	}
	if err := checkSessionLengths(spec); err != nil {
		return answer{}, err
	}
	var files []*os.File
	if spec.Import == "" {
		dir, err := c.openRepo(spec.Repo)
		if err != nil {
			return answer{}, err
		}
		if dir != nil {
			defer dir.Close()
			m.Flags |= wire.FlagRepo
			files = append(files, dir)
		}
	}
	if spec.Import == "" {
		path, dir, flag := c.common(spec.Repo)
		m.Common = path
		m.Flags |= flag
		if dir != nil {
			defer dir.Close()
			files = append(files, dir)
		}
	}
	return c.one(ctx, want, &m, files...)
}

// checkSessionLengths refuses values that exceed a message's maximum: truncated, they would name something else.
func checkSessionLengths(spec job.SessionSpec) error {
	for _, f := range []struct {
		what, value string
		limit       int
	}{
		{"repo", spec.Repo, wire.MaxPath},
		{"profile", spec.Profile, wire.MaxName},
		{"session name", spec.Name, wire.MaxLabel},
		{"root file system", spec.Image, wire.MaxLabel},
		{"root file system", spec.Import, wire.MaxLabel},
		{"network", spec.Network, wire.MaxNetwork},
	} {
		if len(f.value) > f.limit {
			return &job.Refusal{Step: "session", Message: fmt.Sprintf("%s %.40q… has %d bytes, maximum %d", f.what, f.value, len(f.value), f.limit)}
		}
	}
	return nil
}

// CloseSession implements job.Sessions.
func (c *Client) CloseSession(ctx context.Context, id string, keep bool) (bool, error) {
	if len(id) > wire.MaxName {
		return false, &job.Refusal{Step: "session", Message: fmt.Sprintf("no session %.40q…", id)}
	}
	a, err := c.one(ctx, wire.OpClosed, &wire.CloseSession{Keep: keep, ID: id})
	if err != nil {
		return false, err
	}
	m, err := wire.Decode[wire.Closed](a.body)
	return m.Kept, err
}

// ListSessions implements job.Sessions.
func (c *Client) ListSessions(context.Context) ([]job.Session, error) {
	return all(c, wire.OpSessions, wire.ReadSession)
}

// ListImages implements job.Images.
func (c *Client) ListImages(context.Context) ([]job.Image, error) {
	return all(c, wire.OpImages, wire.ReadImage)
}

// RemoveImage implements job.Images.
func (c *Client) RemoveImage(ctx context.Context, name string) error {
	if len(name) > wire.MaxLabel {
		return &job.Refusal{Step: "session", Message: fmt.Sprintf("no root file system %.40q…", name)}
	}
	_, err := c.one(ctx, wire.OpClosed, &wire.RemoveImage{Name: name})
	return err
}

// one sends a request and waits for its one answer, which must be of kind want or a refusal.
func (c *Client) one(ctx context.Context, want wire.Op, request wire.Message, files ...*os.File) (answer, error) {
	a, err := c.answered(ctx, want, request, files...)
	wire.CloseAll(a.files)
	return a, err
}

// answered is one for an answer with files, which the caller closes.
func (c *Client) answered(ctx context.Context, want wire.Op, request wire.Message, files ...*os.File) (answer, error) {
	a, err := c.exchange(ctx, request, files...)
	if err != nil || a.op == want {
		return a, err
	}
	wire.CloseAll(a.files)
	return answer{}, refusal(a)
}

// refusal returns the refusal that an answer of another kind than awaited is, or ErrMalformed.
func refusal(a answer) error {
	if a.op != wire.OpResult {
		return wire.ErrMalformed
	}
	m, err := wire.Decode[wire.Result](a.body)
	if err == nil {
		_, err = m.JobResult()
	}
	return cmp.Or(err, wire.ErrMalformed)
}
