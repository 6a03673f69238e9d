package ctxtools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"corral/internal/calls"
	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/artifact"
)

// Job is the tool ctx_job: it reports on a background job, reads its output, and signals it.
type Job struct{ *Suite }

// Actions of ctx_job.
const (
	jobOutput = "output"
	jobSignal = "signal"
)

// A jobSignalName is the name of a signal that can be sent to a job.
type jobSignalName string

// Choices implements Choices.
func (jobSignalName) Choices() []string { return run.Signals() }

// jobArgs are the arguments of ctx_job.
type jobArgs struct {
	ID     string        `arg:"id,required,min=1,max=64" about:"from ctx_execute"`
	Action string        `arg:"action,required" enum:"status,output,signal"`
	Signal jobSignalName `arg:"signal" default:"TERM"`
	Stream string        `arg:"stream" enum:"stdout,stderr" default:"stdout"`
	Tail   *int          `arg:"tail,min=1,max=1000" about:"last lines"`
	Offset *int          `arg:"offset,min=0,max=1048576MiB" about:"first byte; nextOffset of a reply continues"`
}

// Name implements Tool.
func (t *Job) Name() string { return "ctx_job" }

// Definition implements Tool.
func (t *Job) Definition() tool.Definition {
	return tool.Definition{
		Name: t.Name(), Title: "Follow a job in the background",
		Description: "Follow a job in the background: its status, its output (in parts of at most 100 KB), or a signal to it (TERM ends it). " +
			"When it has ended, its output is indexed for ctx_search.",
		Input: tool.InputSchema(jobArgs{}, tool.Lenient, nil), Output: tool.ReplySchema[jobReply](), TextOnly: true, Destructive: true,
	}
}

// Call implements Tool.
func (t *Job) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	a := &jobArgs{}
	if err := tool.Decode(arguments, a, tool.Lenient); err != nil {
		return failed(err)
	}
	p, err := t.FindProcess(tool.CallerOf(ctx), a.ID)
	if err != nil {
		return failed(err)
	}
	calls.Of(ctx).Repo(p.Repo())
	switch a.Action {
	case jobOutput:
		return t.output(ctx, p, a)
	case jobSignal:
		if err := p.Signal(string(a.Signal)); err != nil {
			return failed(err)
		}
		reply := status(p)
		reply.Text = fmt.Sprintf("SIG%s sent to %s", a.Signal, reply.JobID)
		return tool.TextResult(reply, reply.Text, false), nil
	}
	reply := t.statusOf(ctx, p)
	reply.Text = reply.words()
	return tool.TextResult(reply, reply.Text, false), nil
}

// output replies with a part of the job's output.
func (t *Job) output(ctx context.Context, process *run.Process, a *jobArgs) (tool.Result, error) {
	p, err := t.part(ctx, process, a)
	if err != nil {
		return failed(err)
	}
	reply := status(process)
	reply.Stream, reply.From, reply.Next, reply.Total = a.Stream, &p.from, &p.next, &p.total
	text := tool.UTF8(p.text)
	switch {
	case text == "" && p.total == 0:
		text = "(no output)"
	case text == "":
		text = "(nothing more)"
	}
	if p.missing > 0 {
		text = fmt.Sprintf("... (%d bytes left out) ...\n%s", p.missing, text)
	}
	if p.next < p.total {
		text += fmt.Sprintf("\n\n_(more follows: offset %d of %d)_", p.next, p.total)
	} else if reply.Status == statusRunning {
		text += fmt.Sprintf("\n\n_(still running — offset %d)_", p.next)
	}
	reply.Text = text
	return tool.TextResult(reply, text, false), nil
}

// part reads it from memory while the job runs, afterwards from the artifact or, without one, from the margins kept in
// memory.
func (t *Job) part(ctx context.Context, p *run.Process, a *jobArgs) (part, error) {
	s, err := p.State()
	if err != nil {
		return part{}, err
	}
	if s.Running || s.Output.Handle == "" || t.Outputs == nil {
		return a.cut(s.Stream(a.Stream)), nil
	}
	w := a.window()
	if err := t.Stream(ctx, s.Caller, s.Request.Repo, s.Output.Handle, a.Stream, w); err != nil {
		return part{}, artifactError(err)
	}
	return a.lines(w.part()), nil
}

// artifactError converts an error of reading an artifact.
func artifactError(err error) error {
	switch {
	case errors.Is(err, artifact.ErrNotFound), errors.Is(err, artifact.ErrExpired):
		return &tool.Error{Code: tool.CodeExpired, Message: "the job's output has expired"}
	case errors.Is(err, artifact.ErrCorrupt):
		return &tool.Error{Code: tool.CodeCorrupt, Message: "the job's stored output is corrupt"}
	}
	return err
}
