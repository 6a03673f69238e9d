package mcp

import (
	"context"
	"time"

	"corral/artifact"
	"corral/job"
)

const (
	// ctxRaw is how many bytes of standard output a reply shows as they are: what is more is indexed.
	ctxRaw = 100 << 10
	// ctxSmall is how many bytes are so few that they are not indexed, whatever is wanted.
	ctxSmall = 5000
)

// A ctxRun is one script to run.
type ctxRun struct {
	tool    string // that was called
	caller  Caller
	repo    string
	runtime string // of package lang
	code    string
	dir     string // relative to the repository; "" is that
	env     map[string]*string
	timeout time.Duration // 0 is what the policy allows
	label   string        // what its output is indexed as: "execute:shell"
	// background is a job that may go on when the call has its reply.
	background bool
}

// A ctxRan is what became of one.
type ctxRan struct {
	*ctxRun
	record *job.Record
	out    artifact.Captured // with Head and Tail of each stream
}

// run runs a script to its end. The error is a tool's; of what was denied, failed or timed out there is none.
func (x *Ctx) run(ctx context.Context, r *ctxRun) (*ctxRan, error) {
	x.begin()
	out := x.output(r, ctxRaw/2)
	record, err := x.Engine.Run(ctx, r.request(), out, watch(r.caller))
	if err != nil {
		return nil, failed(err)
	}
	if record.Status == job.Cancelled && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	ran := &ctxRan{r, record, out.Captured()}
	x.sums.add(ownerOf(r.caller), 0, size(ran.capture(artifact.Stdout))+size(ran.capture(artifact.Stderr)), 0)
	return ran, nil
}

func (r *ctxRun) request() *job.Request {
	return &job.Request{
		Tool: r.tool, Principal: r.caller.Principal, Session: r.caller.Session, ID: r.caller.Trace, Repo: r.repo,
		Runtime: r.runtime, Code: &r.code, Dir: r.dir, Env: r.env, Limits: job.Limits{Wall: r.timeout},
	}
}

// output begins what takes the output of r: all of it is stored, and the margins are kept to be shown.
func (x *Ctx) output(r *ctxRun, margins int) *artifact.Output {
	o := artifact.BeginOptions{
		Repo: r.repo, Runtime: r.runtime, Principal: r.caller.Principal, Persist: true, Secrets: x.Secrets,
		View: artifact.View{Ends: margins},
	}
	if x.Outputs == nil {
		return (*artifact.Store)(nil).Begin(o)
	}
	return x.Outputs.Begin(o)
}

// capture is a stream of what was captured.
func (r *ctxRan) capture(stream string) *artifact.StreamCapture {
	if stream == artifact.Stderr {
		return &r.out.Stderr
	}
	return &r.out.Stdout
}

// size is how many bytes a stream has, after redaction.
func size(c *artifact.StreamCapture) int64 { return int64(len(c.Head)+len(c.Tail)) + c.Between }
