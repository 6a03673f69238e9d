package ctxtools

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"corral/job"
	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/artifact"
)

// backgroundMargins is how many bytes of the head and of the tail of each stream are in memory while a job runs.
const backgroundMargins = 128 << 10

// background starts a job and replies when wait is over or the job has ended. With wait 0 it replies when the job has started.
func (x *Suite) background(ctx context.Context, j run.Job, wait time.Duration, intent string) (tool.Result, error) {
	p := x.prepare(ctx, j)
	if err := p.List(); err != nil {
		return failed(err)
	}
	p.Start()
	// A denied job, or one that cannot be started, is reported at once.
	p.Await(ctx, wait, maxQueue)
	if ctx.Err() != nil {
		p.Cancel()
		p.Forget()
		return tool.Result{}, ctx.Err()
	}
	ended, err := p.Detach()
	if err != nil {
		return failed(err)
	}
	s, err := p.State()
	switch {
	case !ended:
		return x.backgrounded(ctx, p, wait), nil
	case err != nil:
		return failed(err)
	}
	return x.answer(ctx, &s, 0, intent) // the job ended during its call, so it is not a background job
}

// maxQueue is longer than a job waits for its start.
const maxQueue = 24 * time.Hour

// backgrounded returns the reply about a job that continues in the background.
func (x *Suite) backgrounded(ctx context.Context, p *run.Process, wait time.Duration) tool.Result {
	s, _ := p.State()
	status := x.statusOf(ctx, p)
	status.Text = fmt.Sprintf("_(process backgrounded after %dms — still running)_\n\nJob: %s. Follow it with ctx_job(id: %q, action: \"status\" | \"output\" | \"signal\").",
		wait.Milliseconds(), s.ID, s.ID)
	if len(status.Listening) > 0 {
		status.Text += " Jobs of the session listen at " + strings.Join(status.Listening, " ") + "."
	}
	if s.Output.Stdout.Size() > 0 {
		status.Text = middleOut(&s.Output.Stdout, rawOutput) + "\n\n" + status.Text
	}
	return tool.TextResult(status, status.Text, false)
}

// Launch starts a job that outlives its call if it is detached. It runs until it ends, is cancelled, or has run for the time that its
// request asks for: x.BackgroundLife is the maximum. See run.Process.Start.
func (x *Suite) Launch(ctx context.Context, j run.Job) *run.Process {
	p := x.prepare(ctx, j)
	p.Start()
	return p
}

// prepare returns a process that is not started.
func (x *Suite) prepare(ctx context.Context, j run.Job) *run.Process {
	r := *j.Request
	life := cmp.Or(x.BackgroundLife, DefaultBackgroundLife)
	r.Usual = job.Limits{Wall: min(cmp.Or(r.Usual.Wall, life), life)}
	j.Request = &r
	h := run.Host{
		Engine: x.Engine, Max: cmp.Or(x.MaxBackground, DefaultMaxBackground), MaxAll: x.MaxBackgroundAll, Ended: x.ended, Learn: x.Learn,
	}
	return x.processes.Prepare(ctx, h, j, j.Begin(x.Outputs, x.options(backgroundMargins)))
}

// ended logs the end of a job whose call was logged when it returned, and indexes its output.
func (x *Suite) ended(ctx context.Context, p *run.Process, s run.State) error {
	id, status := "", status(p)
	if s.Record != nil {
		id = s.Record.Result.ID
	}
	x.Log.InfoContext(ctx, "background job ended", "trace_id", s.Caller.Trace, "tool", s.Request.Tool, "repo", s.Request.Repo,
		"principal", s.Caller.Principal, "session", s.Caller.Session, "job", id, "id", s.ID, "status", string(status.Status),
		"wall_ms", status.DurationMs, "bytes_out", status.StdoutBytes+status.StderrBytes)
	if s.Record == nil {
		return nil
	}
	var streams []string
	if s.Output.Stdout.Size() > 0 {
		streams = append(streams, artifact.Stdout)
	}
	if s.Output.Stderr.Size() > smallOutput {
		streams = append(streams, artifact.Stderr)
	}
	if s.Request.Share {
		streams = s.Written()
	}
	return x.indexLater(context.WithoutCancel(ctx), &s, streams...)
}
