package mcp

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"corral/artifact"
	"corral/index"
)

// Why output is not indexed.
var (
	errNoKnowledge = errors.New("there is no index here")
	errNotKept     = errors.New("the output was not kept")
)

// A indexTask is streams of an artifact that are to be indexed, and all that has to be known for it.
type indexTask struct {
	base        index.Base
	sources     []index.Source
	trace, tool string
	fresh       bool // nobody else can have had them indexed
}

// choreOf is that of a run; the error says why there can be none.
func (x *Ctx) choreOf(ran *ctxRan, streams ...string) (*indexTask, error) {
	switch {
	case x.Knowledge == nil:
		return nil, errNoKnowledge
	case ran.out.Handle == "" && ran.out.Reason != "":
		return nil, errors.New(ran.out.Reason)
	case ran.out.Handle == "" || x.Outputs == nil:
		return nil, errNotKept
	}
	c := &indexTask{base: x.base(ran.caller, ran.repo), trace: ran.caller.Trace, tool: ran.tool}
	for _, stream := range streams {
		c.sources = append(c.sources, index.Source{Label: ran.label, Artifact: ran.out.Handle, Stream: stream})
	}
	return c, nil
}

// do indexes what is not indexed yet, and returns what has become of the last source. Two tasks of an artifact are done one
// after the other.
func (x *Ctx) do(ctx context.Context, c *indexTask) (added index.Added, err error) {
	if len(c.sources) == 0 {
		return added, nil
	}
	done, err := x.turns.take(ctx, c.sources[0].Artifact)
	if err != nil {
		return added, ended(ctx, err)
	}
	defer done()
	for _, s := range c.sources {
		if ctx.Err() != nil {
			return added, context.Cause(ctx)
		}
		has := false
		if !c.fresh {
			if has, err = x.Knowledge.Has(ctx, c.base, s.Artifact, s.Stream); err != nil {
				return added, ended(ctx, err)
			}
		}
		if has {
			continue
		}
		if added, err = x.learnFrom(ctx, c.base.Repo, c.base.Principal, s); err != nil {
			return added, ended(ctx, err)
		}
	}
	return added, nil
}

// ended is why ctx has ended, if it has; else err.
func ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// learn indexes a stream of what a job wrote, from its artifact, under the label of its run. When it returns without an error it
// can be found. With errStill it took longer than a reply can wait, and goes on.
func (x *Ctx) learn(ctx context.Context, ran *ctxRan, stream string) (index.Added, error) {
	c, err := x.choreOf(ran, stream)
	if err != nil {
		return index.Added{}, err
	}
	c.fresh = true
	return x.finish(ctx, c)
}

// finish does a task, and waits for it as long as a reply can wait. After errStill it goes on; it does not if ctx ends.
func (x *Ctx) finish(ctx context.Context, c *indexTask) (index.Added, error) {
	x.begin()
	var left atomic.Bool // nobody waits
	var added index.Added
	var err error
	q, refused := x.pending.run(ctx, c.base, func(ctx context.Context) {
		if added, err = x.do(ctx, c); err != nil && left.Load() {
			x.logUnindexed(ctx, c, err)
		}
	})
	if refused != nil {
		return index.Added{}, refused
	}
	timer := time.NewTimer(orDuration(x.patience, ctxPatience))
	defer timer.Stop()
	select {
	case <-q.done:
		return added, err
	case <-timer.C:
		left.Store(true)
		return index.Added{}, errStill
	case <-ctx.Done():
		q.cancel(ctx.Err())
		return index.Added{}, ctx.Err()
	}
}

// later indexes streams of what a job wrote when the reply is on its way. Who searches meanwhile waits for it, see settled. The
// error says why that is not done; the artifact is there all the same, and fuzzy can have it indexed.
func (x *Ctx) later(ctx context.Context, ran *ctxRan, streams ...string) error {
	if x.Knowledge == nil || ran.out.Handle == "" || len(streams) == 0 {
		return nil
	}
	x.begin()
	c, err := x.choreOf(ran, streams...)
	if err != nil {
		return err
	}
	_, err = x.pending.run(ctx, c.base, func(ctx context.Context) {
		if _, err := x.do(ctx, c); err != nil {
			x.logUnindexed(ctx, c, err)
		}
	})
	if err != nil {
		x.logUnindexed(ctx, c, err)
	}
	return err
}

func (x *Ctx) logUnindexed(ctx context.Context, c *indexTask, err error) {
	x.Log.WarnContext(ctx, "output is not indexed", "trace_id", c.trace, "tool", c.tool, "artifact", c.sources[0].Artifact, "error", err.Error())
}

// learnFrom indexes a source that is a stream of an artifact.
func (x *Ctx) learnFrom(ctx context.Context, repo, principal string, s index.Source) (index.Added, error) {
	r, w := io.Pipe()
	read := make(chan struct{})
	go func() {
		defer close(read)
		reader := artifact.Reader{Principal: principal, Repos: []string{repo}}
		_ = w.CloseWithError(x.Outputs.Stream(ctx, reader, s.Artifact, s.Stream, w)) // which the index reads
	}()
	added, err := x.Knowledge.Add(ctx, index.Base{Repo: repo, Principal: principal}, s, r)
	_ = r.Close()
	<-read
	return added, err
}

// settled waits until what was being indexed for a base when it was called can be found, for some seconds at most.
func (x *Ctx) settled(ctx context.Context, b index.Base) {
	x.begin()
	x.pending.wait(ctx, b)
}
