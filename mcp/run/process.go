package run

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/calls"
	"corral/job"
	"corral/mcp/tool"
	"corral/store/artifact"
)

// A Process is a job that may outlive its call: it runs until it ends, is cancelled, or Processes ends it. It keeps neither the code nor
// the input of its job, because it stays in memory as long as it is listed. Its methods may be called by several goroutines at once.
type Process struct {
	job    Job // without what may be large
	id     string
	begun  time.Time
	list   *Processes
	host   Host
	begin  func() // starts it
	cancel context.CancelFunc

	started chan struct{} // closed when the job can be signaled
	done    chan struct{} // closed when the job has ended

	writing sync.Mutex // held while something is written to stdin

	mu       sync.Mutex
	stdin    *os.File          // guarded by mu: nil unless its input is open
	out      *artifact.Output  // guarded by mu: nil after the job has ended
	signaler job.Signaler      // guarded by mu: nil before the job has started
	record   *job.Record       // guarded by mu: nil before the job has ended, and if corral failed
	captured artifact.Captured // guarded by mu: set with record
	err      error             // guarded by mu: failure of corral, not of the job
	ended    time.Time         // guarded by mu
	detached bool              // guarded by mu: the call returned before the job ended
	skipped  string            // guarded by mu: why the output is not indexed
}

// A Host runs the jobs of Processes.
type Host struct {
	Engine Engine
	Max    int // maximum number of background jobs of one principal
	MaxAll int // maximum number of background jobs of all principals together; 0 is unlimited
	// Ended is called when a process has ended that was detached. It returns why the output is not indexed, nil if it is.
	Ended func(ctx context.Context, p *Process, s State) error
	// Learn indexes the output of a process that ended without having been detached.
	Learn func(ctx context.Context, s State)
}

// Prepare returns the process of a job that Start starts. out receives its output.
func (l *Processes) Prepare(ctx context.Context, h Host, j Job, out *artifact.Output) *Process {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	request := *j.Request
	request.Background = true
	p := &Process{
		job: j.short(), id: "bg_" + calls.RandomHex(8), begun: time.Now(), list: l, host: h, cancel: cancel, out: out,
		started: make(chan struct{}), done: make(chan struct{}),
	}
	hooks := Progress(j.Caller)
	hooks.Started, hooks.Stdin = p.jobStarted, p.openInput
	p.begin = func() {
		defer cancel()
		record, err := h.Engine.Run(running, &request, out, hooks)
		p.finish(running, record, err)
	}
	return p
}

// short returns j without what may be large, and without what refers to the call.
func (j Job) short() Job {
	q := *j.Request
	q.Code, q.Args, q.Command, q.Env, q.Stdin = nil, nil, nil, nil, ""
	j.Request, j.Caller.Progress = &q, nil
	return j
}

// Start starts the process. The caller must call Detach or Cancel, or wait until it is Done, unless it is listed.
func (p *Process) Start() {
	begin := p.begin
	p.begin = nil // it has the code
	p.list.start(p.cancel, begin)
}

// jobStarted is the hook that receives the handle for signaling the job.
func (p *Process) jobStarted(s job.Signaler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.signaler == nil {
		close(p.started)
	}
	p.signaler = s
}

// openInput is the hook that opens the job's input.
func (p *Process) openInput() (*os.File, error) {
	stdin, w, err := os.Pipe()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stdin = w
	return stdin, err
}

// closeInput closes the job's input, if that is open.
func (p *Process) closeInput() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stdin != nil {
		p.stdin.Close()
		p.stdin = nil
	}
}

// finish records the end of the job and, unless its call returns the output, has it indexed.
func (p *Process) finish(ctx context.Context, record *job.Record, err error) {
	p.mu.Lock()
	p.captured, p.record = p.out.Captured(), record
	p.ended, p.out = time.Now(), nil
	if err != nil {
		p.record, p.err = nil, Failed(err)
	}
	detached := p.detached
	p.mu.Unlock()
	p.closeInput()
	close(p.done)
	if !detached {
		return
	}
	s, err := p.State()
	if skipped := p.host.Ended(ctx, p, s); err == nil {
		p.trim(skipped)
	}
}

// Bytes at each end of an ended process's streams that stay in memory: enough to see which kind of output it is, and more if the output
// could not be stored.
const (
	endedMargins  = 16 << 10
	storedMargins = 16
)

// trim drops the job's request and the output that can be read from the artifact. skipped is the reason why the output is not indexed,
// nil if it is.
func (p *Process) trim(skipped error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if skipped != nil {
		p.skipped = tool.Clean(skipped.Error())
	}
	margin := endedMargins
	if p.captured.Handle != "" {
		margin = storedMargins
	}
	record := *p.record
	record.Request, record.Decision.Spec = nil, job.Spec{Limits: record.Decision.Spec.Limits}
	p.record = &record
	for _, c := range []*artifact.StreamCapture{&p.captured.Stdout, &p.captured.Stderr} {
		n := c.Size()
		head, tail := c.Head[:min(len(c.Head), margin)], c.Tail[max(0, len(c.Tail)-margin):]
		c.Head, c.Tail = strings.Clone(head), strings.Clone(tail)
		c.Between = n - int64(len(head)+len(tail))
	}
}

// ID returns the id by which the caller's session finds the process.
func (p *Process) ID() string { return p.id }

// Repo returns the id of the repository in which it runs.
func (p *Process) Repo() string { return p.job.Request.Repo }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Cancel ends the process and returns when it has ended.
func (p *Process) Cancel() {
	p.cancel()
	<-p.done
}

// Await waits until p has ended, for at most wait from its start, which is after queue at the latest. It reports whether p has ended.
func (p *Process) Await(ctx context.Context, wait, queue time.Duration) bool {
	started := p.started
	timer := time.NewTimer(queue + wait)
	defer timer.Stop()
	for {
		select {
		case <-p.done:
			return true
		case <-started:
			started = nil
			timer.Reset(wait)
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// List makes the process one of the background jobs of its caller's session. The error is an *Error with code DENIED if the principal, or
// all principals together, have their maximum of background jobs.
func (p *Process) List() error { return p.list.add(p) }

// Detach separates the process from its call: it is one of the background jobs of its caller's session from now on, and is indexed when
// it ends. ended reports that it had ended before; it is not listed then. The error is that of List; the process runs on then.
func (p *Process) Detach() (ended bool, err error) {
	if err := p.List(); err != nil {
		return false, err
	}
	p.mu.Lock()
	ended = p.out == nil
	p.detached = !ended
	p.mu.Unlock()
	if ended {
		p.list.forget(p)
	}
	return ended, nil
}

// Forget takes the process off the list.
func (p *Process) Forget() { p.list.forget(p) }

// Learn indexes the output of a process that ended without having been detached. It does not wait for the end of indexing; a search does.
func (p *Process) Learn(ctx context.Context) {
	if s, err := p.State(); err == nil && !s.Running {
		p.host.Learn(ctx, s)
	}
}

// State returns the current state. While the process runs, the output has the margins so far. The error is corral's own failure to run
// the process, as an *Error where it is known.
func (p *Process) State() (State, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := State{
		Job: p.job, Record: p.record, Output: p.captured,
		ID: p.id, Begun: p.begun, Ended: p.ended, Running: p.out != nil, Skipped: p.skipped,
	}
	if s.Running {
		s.Output.Stdout, s.Output.Stderr = p.out.Margins(artifact.Stdout), p.out.Margins(artifact.Stderr)
	}
	return s, p.err
}

// A signaling is a signal that can be sent to a process.
type signaling struct {
	name   string
	number unix.Signal
	// everyone sends the signal to all processes, as a terminal does, and not to the first process only, whose end ends all others.
	everyone bool
	ends     bool // see job.Signaler.End
}

var signals = []signaling{
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

// Signals returns the names of the signals that can be sent, without SIG.
func Signals() []string {
	var names []string
	for _, s := range signals {
		names = append(names, s.name)
	}
	return names
}

// Signal sends a signal, one of Signals. The error is an *Error.
func (p *Process) Signal(name string) error {
	n := slices.IndexFunc(signals, func(s signaling) bool { return s.name == name })
	if n < 0 {
		return tool.Invalid("signal", "%q is not one of: %s", tool.Clip(name), strings.Join(Signals(), ", "))
	}
	p.mu.Lock()
	signaler, ended := p.signaler, p.out == nil
	p.mu.Unlock()
	switch {
	case ended:
		return &tool.Error{Code: tool.CodeInvalid, Message: "id: job " + p.id + " has ended"}
	case signaler == nil:
		return &tool.Error{Code: tool.CodeUnavailable, Message: "job " + p.id + " has not started yet: it is waiting for a slot"}
	}
	var err error
	if s := signals[n]; s.ends {
		err = signaler.End(int(s.number))
	} else {
		err = signaler.Signal(int(s.number), s.everyone)
	}
	if err != nil {
		return Failed(err)
	}
	return nil
}

// Input writes text to the process's standard input and, with end, closes it. It returns the number of bytes written, which are less than
// those of text if the process has not read the rest by the deadline: then nothing is closed. The error is an *Error.
func (p *Process) Input(text string, end bool, deadline time.Time) (int, error) {
	p.writing.Lock()
	defer p.writing.Unlock()
	p.mu.Lock()
	w, running := p.stdin, p.out != nil
	p.mu.Unlock()
	switch {
	case !running:
		return 0, tool.Invalid("id", "job %s has ended", p.id)
	case !p.job.Request.Streamed:
		return 0, tool.Invalid("id", "job %s has no input: run it with input: true", p.id)
	case w == nil:
		return 0, tool.Invalid("id", "the input of job %s is closed, or it has not started yet", p.id)
	}
	err := w.SetWriteDeadline(deadline)
	n := 0
	if err == nil {
		n, err = io.WriteString(w, text)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, nil
	case err != nil:
		return n, tool.Invalid("id", "job %s has closed its input", p.id)
	case end:
		p.closeInput()
	}
	return n, nil
}
