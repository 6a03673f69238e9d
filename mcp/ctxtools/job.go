package ctxtools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"corral/internal/calls"
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

// A jobSignaling is a signal that can be sent to a job.
type jobSignaling struct {
	name   string
	number unix.Signal
	// everyone sends the signal to all processes, as a terminal does, and not to the first process only,
	// whose end ends all others.
	everyone bool
	ends     bool // see job.Signaler.End
}

var jobSignals = []jobSignaling{
	{name: "TERM", number: unix.SIGTERM, ends: true},
	{name: "INT", number: unix.SIGINT, everyone: true},
	{name: "HUP", number: unix.SIGHUP, everyone: true},
	{name: "QUIT", number: unix.SIGQUIT, everyone: true},
	{name: "KILL", number: unix.SIGKILL},
	{name: "USR1", number: unix.SIGUSR1},
	{name: "USR2", number: unix.SIGUSR2},
	{name: "STOP", number: unix.SIGSTOP, everyone: true},
	{name: "CONT", number: unix.SIGCONT, everyone: true},
}

// A jobSignalName is the name of a signal that can be sent to a job.
type jobSignalName string

// Choices implements Choices.
func (jobSignalName) Choices() []string {
	var names []string
	for _, s := range jobSignals {
		names = append(names, s.name)
	}
	return names
}

// send sends a signal, which is one of the Choices, to the job.
func (b *background) send(name jobSignalName) error {
	n := slices.IndexFunc(jobSignals, func(s jobSignaling) bool { return s.name == string(name) })
	return b.signal(jobSignals[n])
}

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
	b, err := t.jobs.find(ownerOf(tool.CallerOf(ctx)), a.ID)
	if err != nil {
		return failed(err)
	}
	calls.Of(ctx).Repo(b.repo)
	switch a.Action {
	case jobOutput:
		return t.output(ctx, b, a)
	case jobSignal:
		if err := b.send(a.Signal); err != nil {
			return failed(err)
		}
		reply := b.status()
		reply.Text = fmt.Sprintf("SIG%s sent to %s", a.Signal, b.id)
		return tool.TextResult(reply, reply.Text, false), nil
	}
	reply := t.statusOf(ctx, b)
	reply.Text = reply.words()
	return tool.TextResult(reply, reply.Text, false), nil
}

// output replies with a part of the job's output.
func (t *Job) output(ctx context.Context, b *background, a *jobArgs) (tool.Result, error) {
	p, err := t.part(ctx, b, a)
	if err != nil {
		return failed(err)
	}
	reply := b.status()
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
func (t *Job) part(ctx context.Context, b *background, a *jobArgs) (part, error) {
	if live, ok := b.live(a.Stream); ok {
		return a.cut(&live), nil
	}
	ran, err := b.outcome()
	if err != nil {
		return part{}, err
	}
	c := ran.capture(a.Stream)
	if ran.out.Handle == "" || t.Outputs == nil {
		return a.cut(c), nil
	}
	w := a.window()
	reader := artifact.Reader{Principal: b.caller.Principal, Repos: []string{b.repo}}
	if err := t.Outputs.Stream(ctx, reader, ran.out.Handle, a.Stream, w); err != nil {
		return part{}, artifactError(err)
	}
	p := w.part()
	return a.lines(p), nil
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
