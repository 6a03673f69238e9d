package front

import (
	"context"
	"errors"
	"fmt"
	"io"

	"corral/front/patches"
	"corral/internal/config"
	"corral/job"
	"corral/mcp/agent"
	"corral/mcp/tool"
	"corral/workspace/changes"
	"corral/workspace/changes/stream"
	"corral/workspace/session"
)

// A reviewer reads what the sessions of clients changed in repositories.
type reviewer struct {
	config   config.Config
	sessions *session.Manager
	runner   job.Runner
}

// review is agent.Suite.Review.
func (v *reviewer) review(ctx context.Context, c tool.Caller, repo string, paths []string, diff io.Writer) (*agent.Review, error) {
	r, ok := v.config.Repo(repo)
	if !ok {
		return nil, fmt.Errorf("no repository %q", repo)
	}
	if v.config.For(r).Workspace != job.Overlay {
		return &agent.Review{Direct: true}, nil
	}
	id := v.sessions.Overlay(c.Principal, c.Session, r.Path)
	if id == "" {
		return &agent.Review{}, nil
	}
	l := changes.Layer{Session: id, Repo: r.Path, Claim: job.Claim{
		Tool: "changes list", Principal: c.Principal, Session: c.Session, Request: c.Trace, Repo: repo,
	}}
	if diff == nil {
		list := &job.Changes{}
		sum, err := changes.Show(ctx, v.runner, l, changes.DefaultList, paths, func(e *stream.Entry) error {
			list.Entries = append(list.Entries, changes.Change(e))
			if len(list.Entries) > 2*changes.DefaultList {
				return errors.New("more changes were returned than requested")
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		list.More, list.Bytes, list.Incomplete = int(sum.More), sum.Bytes, sum.Incomplete
		return &agent.Review{Changes: list}, nil
	}
	l.Claim.Tool = "changes diff"
	sum, err := changes.Patch(ctx, v.runner, l, diff, paths)
	if err != nil {
		return nil, err
	}
	return &agent.Review{Missing: patches.Missing(sum)}, nil
}
