package ctxtools

import (
	"context"
	"time"

	"corral/job"
	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/artifact"
)

const (
	// rawOutput is the maximum number of bytes of standard output returned as they are; longer output is indexed.
	rawOutput = 100 << 10
	// smallOutput is the maximum number of bytes of an output that is not indexed even with an intent.
	smallOutput = 5000
)

// A scriptRun is one script to run.
type scriptRun struct {
	tool    string // name of the called tool
	caller  tool.Caller
	repo    string
	runtime string // of package runtimes
	code    string
	dir     string // relative to the repository; "" is its root
	env     map[string]*string
	network string        // see job.Request
	timeout time.Duration // 0 is the policy's maximum; a longer one is cut to that
	label   string        // name of the source in the index: "execute:shell"
	// background means that the job may outlive its call.
	background bool
	// share and queueWait are Share and QueueWait of the request, see job.Request.
	share     bool
	queueWait time.Duration
	input     bool         // its standard input stays open, see Process.Input
	fixed     *job.Request // the request, if another tool made it; nil: it follows from the other fields
}

// A finishedRun is a finished run.
type finishedRun struct {
	*scriptRun
	record *job.Record
	out    artifact.Captured // with the head and tail of each stream
}

// run runs a script and waits for its end. A job that was denied, failed or timed out is not an error.
func (x *Suite) run(ctx context.Context, r *scriptRun) (*finishedRun, error) {
	out := x.output(r, rawOutput/2)
	record, err := x.Engine.Run(ctx, r.request(), out, run.Progress(r.caller))
	if err != nil {
		return nil, run.Failed(err)
	}
	if record.Status == job.Cancelled && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	ran := &finishedRun{r, record, out.Captured()}
	x.sums.add(ownerOf(r.caller), 0, size(ran.capture(artifact.Stdout))+size(ran.capture(artifact.Stderr)), 0)
	return ran, nil
}

func (r *scriptRun) request() *job.Request {
	if r.fixed != nil {
		q := *r.fixed
		return &q
	}
	return &job.Request{
		Tool: r.tool, Principal: r.caller.Principal, Session: r.caller.Session, ID: r.caller.Trace, Repo: r.repo,
		Runtime: r.runtime, Code: &r.code, Dir: r.dir, Env: r.env, Network: r.network, Usual: job.Limits{Wall: r.timeout},
		Share: r.share, QueueWait: r.queueWait, Streamed: r.input,
	}
}

// output returns a capture of r's output that stores all of it and keeps margins bytes at each end in memory.
func (x *Suite) output(r *scriptRun, margins int) *artifact.Output {
	o := artifact.BeginOptions{
		Repo: r.repo, Runtime: r.runtime, Principal: r.caller.Principal, Persist: true, Secrets: x.Secrets,
		View: artifact.View{Ends: margins},
	}
	return run.Begin(x.Outputs, o)
}

// capture returns a captured stream.
func (r *finishedRun) capture(stream string) *artifact.StreamCapture {
	if stream == artifact.Stderr {
		return &r.out.Stderr
	}
	return &r.out.Stdout
}

// written returns the names of the streams that are not empty.
func (r *finishedRun) written() []string {
	var streams []string
	for _, name := range []string{artifact.Stdout, artifact.Stderr} {
		if size(r.capture(name)) > 0 {
			streams = append(streams, name)
		}
	}
	return streams
}

// size returns the length of a stream in bytes, after redaction.
func size(c *artifact.StreamCapture) int64 { return int64(len(c.Head)+len(c.Tail)) + c.Between }
