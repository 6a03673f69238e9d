package execute

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"corral/job"
	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/artifact"
)

const (
	// backgroundTime is how long a call with background waits for a command that fails at once.
	backgroundTime = 500 * time.Millisecond
	// backgroundQueue is how long it waits for the command to start.
	backgroundQueue = 30 * time.Second
)

// A runningReply is the reply about a command that runs on: what the command wrote so far, and how to follow it.
type runningReply struct {
	Stdout    string   `json:"stdout"`
	Stderr    string   `json:"stderr"`
	ExitCode  *int     `json:"exit_code"` // null: it runs
	Duration  int64    `json:"exec_duration_ms"`
	JobID     string   `json:"job_id"`
	Listening []string `json:"listening,omitempty"` // where commands of the session listen
	Follow    string   `json:"follow"`
}

// background starts a command that runs on after the reply. A command that ends within a moment gets the reply of any other.
func (t *Sandbox) background(ctx context.Context, a *sandboxArgs, j run.Job) (string, error) {
	if t.Launch == nil {
		return "", invalidSandbox("background is not available: this server has no tool to follow a command by")
	}
	if a.limit() == 0 {
		j.Request.Usual = job.Limits{} // the operator's maximum for commands in the background
	}
	p := t.Launch(ctx, j)
	ended := p.Await(ctx, backgroundTime, backgroundQueue)
	var err error
	if ctx.Err() == nil && !ended {
		ended, err = p.Detach()
	}
	if ctx.Err() != nil || err != nil {
		p.Cancel()
		return "", cmp.Or(ctx.Err(), err)
	}
	s, err := p.State()
	switch {
	case err != nil:
		return "", err
	case ended || !s.Running:
		p.Learn(ctx)
		return t.endedReply(ctx, a, s)
	}
	reply := runningReply{
		Duration: s.Elapsed().Milliseconds(), JobID: s.ID, Listening: t.Ports.Addresses(ctx, j.Caller, j.Request.Repo),
		Follow: t.Follow(s.ID),
	}
	return fitting(margins(&s.Output.Stdout), margins(&s.Output.Stderr), func(stdout, stderr string) any {
		reply.Stdout, reply.Stderr = stdout, stderr
		return reply
	}), nil
}

// endedReply returns the reply about a command that has ended within its call.
func (t *Sandbox) endedReply(ctx context.Context, a *sandboxArgs, s run.State) (string, error) {
	if s.Record.Status == job.Cancelled && ctx.Err() != nil {
		return "", ctx.Err()
	}
	out := s.Output
	out.Stdout.Whole, out.Stderr.Whole = margins(&out.Stdout), margins(&out.Stderr)
	reply, err := t.reply(s.Record, &out, a.limit())
	if err != nil {
		return "", err
	}
	return reply.text(), nil
}

// margins returns a stream whose beginning and end are known.
func margins(c *artifact.StreamCapture) string {
	if c.Between == 0 {
		return tool.UTF8(c.Head + c.Tail)
	}
	return tool.UTF8(c.Head) + fmt.Sprintf("\n... (%d bytes left out) ...\n", c.Between) + tool.UTF8(c.Tail)
}
