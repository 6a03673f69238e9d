package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"corral/internal/calls"
	"corral/mcp/run"
	"corral/mcp/tool"
)

// Job is the tool job: it lists, follows and signals background jobs.
type Job struct{ *Suite }

// Actions of job.
const (
	jobList   = "list"
	jobWait   = "wait"
	jobTail   = "tail"
	jobSignal = "signal"
)

// defaultTail is the number of lines that tail shows.
const defaultTail = 40

// jobArgs are the arguments of job.
type jobArgs struct {
	Action    string `arg:"action" enum:"list,wait,tail,signal" default:"list" about:"wait: for its end, then its output; tail: its last lines now; signal: how it ended, if it did at once"`
	ID        string `arg:"id,max=64" also:"jobId,job_id" about:"bg_…; default: the newest"`
	Timeout   *int   `arg:"timeout,min=1,max=1048576MiB"`
	TimeoutMs *int   `arg:"timeoutMs,hidden,min=1,max=1048576MiB"`
	Lines     *int   `arg:"lines,min=1,max=1000" about:"show only the last ones; default of tail: 40"`
	Input     string `arg:"input,max=1MiB,bytes" about:"text for the standard input of a job run with input, before tail or wait"`
	End       bool   `arg:"end" about:"close that, after the text"`
	Signal    string `arg:"signal,max=16" default:"TERM" about:"INT, KILL, …; the job ends with all its processes when its first one does"`
}

const jobDescription = `Background jobs of run: started with background, or past their timeout.`

// Name implements Tool.
func (t *Job) Name() string { return "job" }

// Definition implements Tool.
func (t *Job) Definition() tool.Definition {
	return tool.Definition{
		Name: t.Name(), Title: "Follow background jobs", Description: jobDescription, Destructive: true,
		Input: tool.InputSchema(jobArgs{}, tool.Tolerant, func(s *tool.Schema) {
			s.Property("timeout").Description = "of wait: " + t.timeoutText()
			plain(s, "id", "timeout", "lines", "input", "end", "signal")
		}),
	}
}

// Call implements Tool.
func (t *Job) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	a := &jobArgs{}
	if err := tool.Decode(arguments, a, tool.Tolerant); err != nil {
		return failed(err)
	}
	caller := tool.CallerOf(ctx)
	writes := a.Input != "" || a.End
	switch {
	case a.Action == jobList && !writes:
		return t.list(ctx, caller)
	case a.Action == jobList:
		a.Action = jobTail
	}
	p, err := t.find(caller, a.ID)
	if err != nil {
		return failed(err)
	}
	calls.Of(ctx).Repo(p.Repo())
	v := &view{Suite: t.Suite, caller: caller}
	before := outputOf(p)
	if writes {
		if err := v.write(p, a); err != nil {
			return failed(err)
		}
	}
	switch a.Action {
	case jobSignal:
		name := strings.TrimPrefix(strings.ToUpper(a.Signal), "SIG")
		if err := p.Signal(name); err != nil {
			return failed(err)
		}
		return text("[SIG" + name + " sent to " + p.ID() + t.effect(ctx, p) + "]")
	case jobWait:
		note, err := t.wait(ctx, p, a)
		if err != nil {
			return failed(err)
		}
		v.notes = append(v.notes, note...)
	case jobTail:
		if v.tail = defaultTail; writes {
			v.answer(ctx, p, before)
		}
	}
	if a.Lines != nil {
		v.tail = *a.Lines
	}
	return v.reply(ctx, p)
}

// write writes to the input of a job.
func (v *view) write(p *run.Process, a *jobArgs) error {
	n, err := p.Input(a.Input, a.End, time.Now().Add(backgroundTime))
	if n < len(a.Input) && err == nil {
		v.notes = append(v.notes, fmt.Sprintf("it has read only %d of the %d bytes of input, and does not go on: send the rest later", n, len(a.Input)))
	}
	return err
}

// answerTime is how long a call waits for what a job writes after it got input.
const answerTime = 2 * time.Second

// answer waits until a job that had written before bytes has written more, and then nothing for a moment.
func (v *view) answer(ctx context.Context, p *run.Process, before int64) {
	last := before
	for until := time.Now().Add(answerTime); time.Now().Before(until) && ctx.Err() == nil; {
		if p.Await(ctx, answerTime/20, 0) {
			return
		}
		now := outputOf(p)
		if now > before && now == last {
			return
		}
		last = now
	}
}

// outputOf returns the number of bytes that a job has written.
func outputOf(p *run.Process) int64 {
	s, _ := p.State()
	return s.Output.Stdout.Bytes + s.Output.Stderr.Bytes
}

// effect says how a job ended that ends soon after a signal, and is "" for others.
func (t *Job) effect(ctx context.Context, p *run.Process) string {
	if !p.Await(ctx, backgroundTime, 0) {
		return ""
	}
	s, err := p.State()
	if err != nil {
		return ""
	}
	return ": " + ended(s.Record)
}

// wait waits for the end of a job, and returns notes for the footer.
func (t *Job) wait(ctx context.Context, p *run.Process, a *jobArgs) ([]string, error) {
	r := &Run{t.Suite}
	limit, notes := r.wait(&runArgs{Timeout: a.Timeout, TimeoutMs: a.TimeoutMs})
	if !p.Await(ctx, limit, 0) && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return notes, nil
}

// find returns the job with an id, or the newest one.
func (t *Job) find(c tool.Caller, id string) (*run.Process, error) {
	if id != "" {
		return t.Scripts.FindProcess(c, id)
	}
	all := t.Scripts.Processes(c)
	if len(all) == 0 {
		return nil, &tool.Error{Code: tool.CodeNotFound, Message: "there are no background jobs"}
	}
	return all[len(all)-1], nil
}

// list replies with one line for each job, the oldest first.
func (t *Job) list(ctx context.Context, c tool.Caller) (tool.Result, error) {
	var b strings.Builder
	asked := map[string]bool{} // repositories in which a job runs
	var ports []string
	for _, p := range t.Scripts.Processes(c) {
		s, err := p.State()
		state := "runs"
		if err == nil && s.Running && !asked[s.Request.Repo] {
			asked[s.Request.Repo] = true
			for _, line := range t.listening(ctx, c, s.Request.Repo) {
				ports = append(ports, s.Request.Repo+": "+line+"\n")
			}
		}
		switch {
		case err != nil:
			state = "failed: " + tool.AsError(err).Message
		case !s.Running:
			state = ended(s.Record)
		}
		fmt.Fprintf(&b, "%s: %s, %s, %s of output, %s\n", s.ID, state, run.Duration(s.Elapsed()),
			kilobytes(s.Output.Stdout.Bytes+s.Output.Stderr.Bytes), s.Request.Repo)
	}
	if b.Len() == 0 {
		return text("no background jobs")
	}
	return text(b.String() + strings.Join(ports, ""))
}
