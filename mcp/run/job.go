package run

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"corral/job"
	"corral/mcp/tool"
	"corral/store/artifact"
)

// A Job is what a tool runs for a caller.
type Job struct {
	Caller  tool.Caller
	Request *job.Request
	Label   string // under which the output is indexed: "execute:shell"
}

// NewRequest returns the request for a job in a repository, with what follows from its caller.
func NewRequest(c tool.Caller, name, repo string) *job.Request {
	return &job.Request{Tool: name, Principal: c.Principal, Session: c.Session, ID: c.Trace, Repo: repo}
}

// Runtime returns the runtime of the job's output: that of the request, and shell for a command.
func (j Job) Runtime() string { return cmp.Or(j.Request.Runtime, "shell") }

// Outputs captures the output of jobs. *artifact.Store implements it, and a front-end's store that is opened at first use.
type Outputs interface {
	// Begin begins a capture of a job's output; its Finish ends it.
	Begin(o artifact.BeginOptions) *artifact.Output
}

// Begin begins a capture of a job's output. Without outputs, it has what o.View asks for, and nothing is stored.
func Begin(outputs Outputs, o artifact.BeginOptions) *artifact.Output {
	if outputs == nil {
		outputs = (*artifact.Store)(nil)
	}
	return outputs.Begin(o)
}

// Begin begins a capture of the job's output, as Begin does.
func (j Job) Begin(outputs Outputs, o artifact.BeginOptions) *artifact.Output {
	o.Repo, o.Principal, o.Runtime = j.Request.Repo, j.Request.Principal, j.Runtime()
	return Begin(outputs, o)
}

// Do runs a job and waits for its end. It is ended when it has written more than o.View.Whole, if that is not 0. A job that was denied,
// failed or timed out is not an error. If ctx ended the job, the error is that of ctx, and the state is returned all the same.
func (j Job) Do(ctx context.Context, e Engine, outputs Outputs, o artifact.BeginOptions) (State, error) {
	running, stop := context.WithCancel(ctx)
	defer stop()
	if o.View.Whole > 0 {
		o.View.Over = stop
	}
	out := j.Begin(outputs, o)
	record, err := e.Run(running, j.Request, out, Progress(j.Caller))
	switch {
	case err != nil:
		return State{}, Failed(err)
	case record.Status == job.Cancelled:
		err = ctx.Err()
	}
	return State{Job: j, Record: record, Output: out.Captured()}, err
}

// A State is what is known of a job. Record is nil while it runs, and if corral failed to run it.
type State struct {
	Job
	Record *job.Record
	Output artifact.Captured // with the head and tail of each stream

	// Of a Process only:
	ID      string
	Begun   time.Time
	Ended   time.Time // zero while it runs
	Running bool
	Skipped string // why the output of an ended one is not indexed
}

// Elapsed is how long a process has run or ran, with its time in the queue.
func (s *State) Elapsed() time.Duration {
	if s.Running {
		return time.Since(s.Begun)
	}
	return s.Ended.Sub(s.Begun)
}

// Stream returns a captured stream.
func (s *State) Stream(name string) *artifact.StreamCapture {
	if name == artifact.Stderr {
		return &s.Output.Stderr
	}
	return &s.Output.Stdout
}

// Written returns the names of the streams that the job wrote to, also if nothing of it is in memory.
func (s *State) Written() []string {
	var streams []string
	for _, name := range []string{artifact.Stdout, artifact.Stderr} {
		if s.Stream(name).Bytes > 0 {
			streams = append(streams, name)
		}
	}
	return streams
}

// A Ports returns the TCP ports at which jobs of the caller's sessions in a repository listen, as its other jobs reach them. nil:
// they are not known.
type Ports func(ctx context.Context, c tool.Caller, repo string) []uint16

// maxAddresses is the maximum number of addresses that a reply has.
const maxAddresses = 8

// Addresses returns where jobs listen, such as 127.0.0.1:8000, and "…" if there are more; nil if there are none.
func (p Ports) Addresses(ctx context.Context, c tool.Caller, repo string) []string {
	if p == nil {
		return nil
	}
	ports := p(ctx, c, repo)
	var list []string
	for _, port := range ports[:min(len(ports), maxAddresses)] {
		list = append(list, fmt.Sprintf("127.0.0.1:%d", port))
	}
	if len(ports) > maxAddresses {
		list = append(list, "…")
	}
	return list
}
