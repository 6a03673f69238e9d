package ctxtools

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"corral/mcp/run"
	"corral/store/artifact"
	"corral/store/index"
)

// indexTimeout is how long a reply waits until its output is indexed.
const indexTimeout = 10 * time.Second

// Reasons why output is not indexed.
var (
	errNoKnowledge = errors.New("indexing is disabled")
	errNotKept     = errors.New("the output was not stored")
	// errStillIndexing means that output is not indexed yet.
	errStillIndexing = errors.New("still being indexed")
)

// An indexTask is a list of streams of one artifact to index.
type indexTask struct {
	base        index.Base
	sources     []index.Source
	trace, tool string
	fresh       bool // the artifact is new: no other task can have indexed it
}

// newIndexTask returns the task of indexing streams of a run, or an error that says why they cannot be indexed.
func (x *Suite) newIndexTask(ran *run.State, streams ...string) (*indexTask, error) {
	switch {
	case x.Knowledge == nil:
		return nil, errNoKnowledge
	case ran.Output.Handle == "" && ran.Output.Reason != "":
		return nil, errors.New(ran.Output.Reason)
	case ran.Output.Handle == "" || x.Outputs == nil:
		return nil, errNotKept
	}
	c := &indexTask{base: x.base(ran.Caller, ran.Request.Repo), trace: ran.Caller.Trace, tool: ran.Request.Tool}
	for _, stream := range streams {
		c.sources = append(c.sources, index.Source{Label: ran.Label, Artifact: ran.Output.Handle, Stream: stream})
	}
	return c, nil
}

// runIndexTask indexes the sources that are not indexed yet, and returns the result for the last one. Tasks of the same
// artifact run one after the other.
func (x *Suite) runIndexTask(ctx context.Context, c *indexTask) (added index.Added, err error) {
	if len(c.sources) == 0 {
		return added, nil
	}
	done, err := x.turns.Acquire(ctx, c.sources[0].Artifact)
	if err != nil {
		return added, causeOr(ctx, err)
	}
	defer done()
	for _, s := range c.sources {
		if ctx.Err() != nil {
			return added, context.Cause(ctx)
		}
		has := false
		if !c.fresh {
			if has, err = x.Knowledge.Has(ctx, c.base, s.Artifact, s.Stream); err != nil {
				return added, causeOr(ctx, err)
			}
		}
		if has {
			continue
		}
		if added, err = x.indexSource(ctx, c.base.Repo, c.base.Principal, s); err != nil {
			return added, causeOr(ctx, err)
		}
	}
	return added, nil
}

// causeOr returns the cause of ctx's end, or err if ctx has not ended.
func causeOr(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// indexStream indexes a stream of a run's output, from its artifact, under the run's label. When it returns nil, searches
// find the output. errStillIndexing means that indexing takes longer than a reply can wait, and continues.
func (x *Suite) indexStream(ctx context.Context, ran *run.State, stream string) (index.Added, error) {
	c, err := x.newIndexTask(ran, stream)
	if err != nil {
		return index.Added{}, err
	}
	c.fresh = true
	return x.indexAndWait(ctx, c)
}

// indexAndWait runs a task and waits for it, at most x.patience. After errStillIndexing the task continues; if
// ctx ends, it is cancelled.
func (x *Suite) indexAndWait(ctx context.Context, c *indexTask) (index.Added, error) {
	var left atomic.Bool // the caller no longer waits
	var added index.Added
	var err error
	q, refused := x.pending.Run(ctx, c.base, func(ctx context.Context) {
		if added, err = x.runIndexTask(ctx, c); err != nil && left.Load() {
			x.logUnindexed(ctx, c, err)
		}
	})
	if refused != nil {
		return index.Added{}, refused
	}
	timer := time.NewTimer(cmp.Or(x.patience, indexTimeout))
	defer timer.Stop()
	select {
	case <-q.Done:
		return added, err
	case <-timer.C:
		left.Store(true)
		return index.Added{}, errStillIndexing
	case <-ctx.Done():
		q.Cancel(ctx.Err())
		return index.Added{}, ctx.Err()
	}
}

// indexLater indexes streams of a run's output without waiting for the end; a search waits for it (see waitIndexed).
// The error says why the streams are not indexed. The artifact exists anyway, and runtime_query_output with match
// fuzzy can have it indexed.
func (x *Suite) indexLater(ctx context.Context, ran *run.State, streams ...string) error {
	if x.Knowledge == nil || ran.Output.Handle == "" || len(streams) == 0 {
		return nil
	}
	c, err := x.newIndexTask(ran, streams...)
	if err != nil {
		return err
	}
	_, err = x.pending.Run(ctx, c.base, func(ctx context.Context) {
		if _, err := x.runIndexTask(ctx, c); err != nil {
			x.logUnindexed(ctx, c, err)
		}
	})
	if err != nil {
		x.logUnindexed(ctx, c, err)
	}
	return err
}

// Learn indexes what a job wrote, from its artifact. It does not wait for the end of indexing; a search does.
func (x *Suite) Learn(ctx context.Context, s run.State) {
	_ = x.indexLater(ctx, &s, s.Written()...) // logged
}

func (x *Suite) logUnindexed(ctx context.Context, c *indexTask, err error) {
	x.Log.WarnContext(ctx, "output was not indexed", "trace_id", c.trace, "tool", c.tool, "artifact", c.sources[0].Artifact, "error",
		err.Error())
}

// indexSource indexes a source that is a stream of an artifact.
func (x *Suite) indexSource(ctx context.Context, repo, principal string, s index.Source) (index.Added, error) {
	r, w := io.Pipe()
	read := make(chan struct{})
	go func() {
		defer close(read)
		reader := artifact.Reader{Principal: principal, Repos: []string{repo}}
		_ = w.CloseWithError(x.Outputs.Stream(ctx, reader, s.Artifact, s.Stream, w)) // the index gets the error from r
	}()
	added, err := x.Knowledge.Add(ctx, index.Base{Repo: repo, Principal: principal}, s, r)
	_ = r.Close()
	<-read
	return added, err
}

// waitIndexed waits until the output that is being indexed for knowledge bases at the time of the call can be found, at most
// settleTimeout.
func (x *Suite) waitIndexed(ctx context.Context, bases ...index.Base) {
	x.pending.Wait(ctx, bases...)
}
