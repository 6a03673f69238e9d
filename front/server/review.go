package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"corral/front/store"
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
	conn     interface {
		job.Runner
		job.Sessions
	}
	alone bool // all sessions of this user's are those of one client
}

// layer returns the layer of the caller's session; nil and a Review if there is none.
func (v *reviewer) layer(ctx context.Context, c tool.Caller, repo, what string) (*changes.Layer, *agent.Review, error) {
	r, ok := v.config.Repo(repo)
	if !ok {
		return nil, nil, fmt.Errorf("no repository %q", repo)
	}
	if v.config.For(r).Workspace != job.Overlay {
		return nil, &agent.Review{Direct: true}, nil
	}
	id := v.sessions.Overlay(c.Principal, c.Session, r.Path)
	if id == "" {
		return nil, &agent.Review{}, nil
	}
	session, err := job.FindSession(ctx, v.conn, id, false)
	if err != nil {
		return nil, nil, err
	}
	l := changes.Of(session)
	l.Claim = job.Claim{Tool: "changes " + what, Principal: c.Principal, Session: c.Session, Request: c.Trace, Repo: repo}
	return &l, &agent.Review{}, nil
}

// review is agent.Suite.Review.
func (v *reviewer) review(ctx context.Context, c tool.Caller, repo string, paths []string, diff io.Writer) (*agent.Review, error) {
	what := "list"
	if diff != nil {
		what = "diff"
	}
	l, r, err := v.layer(ctx, c, repo, what)
	if err != nil || l == nil {
		return r, err
	}
	if diff != nil {
		sum, err := changes.Patch(ctx, v.conn, *l, diff, paths)
		if err != nil {
			return nil, err
		}
		r.Missing = store.Missing(sum)
		return r, v.addNewer(ctx, l, r, paths, newerTime)
	}
	list := &entries{}
	sum, err := changes.Show(ctx, v.conn, *l, maxEntries, paths, list.add)
	if err != nil {
		return nil, err
	}
	list.More, list.Bytes, list.Incomplete = int(sum.More), sum.Bytes, sum.Incomplete
	r.Changes = &list.Changes
	err = v.addNewer(ctx, l, r, paths, newerTime)
	return r, err
}

const (
	maxEntries = 20_000 // changes that are read; a list of them is folded
	maxNewer   = 100    // newer paths that are read
	newerTime  = 10 * time.Second
)

// entries are the changes of a list.
type entries struct{ job.Changes }

func (l *entries) add(e *stream.Entry) error {
	if len(l.Entries) > 2*maxEntries {
		return errors.New("more changes were returned than requested")
	}
	l.Entries = append(l.Entries, changes.Change(e))
	return nil
}

// addNewer adds what is newer in the repository at and below paths (none: everything).
func (v *reviewer) addNewer(ctx context.Context, l *changes.Layer, r *agent.Review, paths []string, within time.Duration) error {
	sum, err := changes.Newer(ctx, v.conn, *l, maxNewer, within, paths, newerOf(r))
	if err == nil {
		r.NewerMore = int(sum.Newer) - len(r.Newer)
	}
	return err
}

// newerOf returns the function that adds a newer path to a Review.
func newerOf(r *agent.Review) func(stream.Newer) error {
	return func(n stream.Newer) error {
		if n.Dir {
			n.Path += "/"
		}
		if len(r.Newer) < maxNewer {
			r.Newer = append(r.Newer, agent.Newer{Path: n.Path, Touched: n.Touched})
		}
		return nil
	}
}

// newer is agent.Suite.Newer. It is for replies about something else, so an error is no answer.
func (v *reviewer) newer(ctx context.Context, c tool.Caller, repo string) *agent.Review {
	l, r, err := v.layer(ctx, c, repo, "newer")
	if err == nil && l != nil {
		err = v.addNewer(ctx, l, r, nil, newerTime)
	}
	if err != nil {
		return &agent.Review{}
	}
	if v.alone && !r.Direct {
		r.Kept = v.kept(ctx, c, repo)
	}
	return r
}

// kept returns the sessions with the caller's repository that ended with changes, for example because the server was restarted: newest
// first.
func (v *reviewer) kept(ctx context.Context, c tool.Caller, repo string) (ids []string) {
	r, _ := v.config.Repo(repo)
	own := v.sessions.Overlay(c.Principal, c.Session, r.Path)
	list, err := v.conn.ListSessions(ctx)
	if err != nil {
		return nil // the call itself reports what is wrong
	}
	for _, one := range slices.Backward(list) {
		if one.Kept && one.Repo == r.Path && one.ID != own {
			ids = append(ids, one.ID)
		}
	}
	return ids
}

// refresh is agent.Suite.Refresh.
func (v *reviewer) refresh(ctx context.Context, c tool.Caller, repo string, paths []string) (*agent.Review, error) {
	what := "refresh"
	if len(paths) > 0 {
		what = "revert"
	}
	l, r, err := v.layer(ctx, c, repo, what)
	if err != nil || l == nil {
		return r, err
	}
	conflict := func(c stream.Conflict) error {
		r.Conflicts = append(r.Conflicts, c.Path)
		return nil
	}
	var sum *stream.Sum
	if len(paths) == 0 {
		sum, err = changes.Refresh(ctx, v.conn, *l, nil, newerOf(r), conflict)
	} else {
		list := &entries{}
		sum, err = changes.Revert(ctx, v.conn, *l, paths, list.add, conflict)
		r.Changes = &list.Changes
	}
	if err == nil && sum.Failed != "" {
		err = errors.New(sum.Failed)
	}
	if err != nil {
		return nil, err
	}
	r.NewerMore = max(int(sum.Newer)-len(r.Newer), 0)
	return r, nil
}
