package ctxtools

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"corral/internal/calls"
	"corral/job"
	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/artifact"
)

const (
	// backgroundMargins is how many bytes of the head and of the tail of each stream are in memory while a job runs.
	backgroundMargins = 128 << 10
	// endedMargins is the same for a finished job whose output could not be stored, and storedMargins for others: enough to see which
	// kind of output it is.
	endedMargins  = 16 << 10
	storedMargins = 16
)

// A background is a job that outlives its call. Its scriptRun has no code, because it stays in memory as long as the job is
// listed.
type background struct {
	*scriptRun
	id      string
	begun   time.Time
	cancel  context.CancelFunc
	started chan struct{} // closed when the job can be signaled
	done    chan struct{} // closed when the job has ended and the fields below are set

	writing sync.Mutex // held while something is written to stdin

	mu       sync.Mutex
	stdin    *os.File         // guarded by mu: nil unless its input is open
	out      *artifact.Output // guarded by mu: nil after the job has ended
	signaler job.Signaler     // guarded by mu: nil before the job has started
	ran      *finishedRun     // guarded by mu: nil before the job has ended, and if corral failed
	err      error            // guarded by mu: failure of corral, not of the job
	ended    time.Time        // guarded by mu
	detached bool             // guarded by mu: the call returned before the job ended
	skipped  string           // guarded by mu: why the output is not indexed
}

// jobStarted is the hook that receives the handle for signaling the job.
func (b *background) jobStarted(s job.Signaler) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.signaler == nil {
		close(b.started)
	}
	b.signaler = s
}

// openInput is the hook that opens the job's input.
func (b *background) openInput() (*os.File, error) {
	stdin, w, err := os.Pipe()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stdin = w
	return stdin, err
}

// closeInput closes the job's input, if that is open.
func (b *background) closeInput() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stdin != nil {
		b.stdin.Close()
		b.stdin = nil
	}
}

// background starts run and replies when wait is over or the job has ended. With wait 0 it replies when the job has started.
func (x *Suite) background(ctx context.Context, run *scriptRun, wait time.Duration, intent string) (tool.Result, error) {
	run.background = true
	run.timeout = 0
	b, err := x.start(ctx, run)
	if err != nil {
		return failed(err)
	}
	select { // report a denied job, or one that cannot be started, at once
	case <-b.started:
	case <-b.done:
	case <-ctx.Done():
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-b.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	ran, ended, err := b.detach(ctx.Err() != nil)
	switch {
	case ctx.Err() != nil:
		b.cancel()
		<-b.done
		x.jobs.forget(b)
		return tool.Result{}, ctx.Err()
	case !ended:
		return x.backgrounded(ctx, b, wait), nil
	case err != nil:
		x.jobs.forget(b)
		return failed(err)
	}
	x.jobs.forget(b) // the job ended during its call, so it is not a background job
	return x.answer(ctx, ran, intent)
}

// backgrounded returns the reply about a job that continues in the background.
func (x *Suite) backgrounded(ctx context.Context, b *background, wait time.Duration) tool.Result {
	status := x.statusOf(ctx, b)
	out, _ := b.live(artifact.Stdout)
	status.Text = fmt.Sprintf("_(process backgrounded after %dms — still running)_\n\nJob: %s. Follow it with ctx_job(id: %q, action: \"status\" | \"output\" | \"signal\").",
		wait.Milliseconds(), b.id, b.id)
	if len(status.Listening) > 0 {
		status.Text += " Jobs of the session listen at " + strings.Join(status.Listening, " ") + "."
	}
	if size(&out) > 0 {
		status.Text = middleOut(&out, rawOutput) + "\n\n" + status.Text
	}
	return tool.TextResult(status, status.Text, false)
}

// start lists and starts a job that runs until its session or its maximum duration ends.
func (x *Suite) start(ctx context.Context, script *scriptRun) (*background, error) {
	b, begin := x.prepare(ctx, script)
	if err := x.jobs.add(b, cmp.Or(x.MaxBackground, DefaultMaxBackground), x.MaxBackgroundAll); err != nil {
		b.cancel()
		return nil, err
	}
	begin()
	return b, nil
}

// launch starts a job without listing it.
func (x *Suite) launch(ctx context.Context, script *scriptRun) *background {
	b, begin := x.prepare(ctx, script)
	begin()
	return b
}

// prepare returns a job, and the function that starts it.
func (x *Suite) prepare(ctx context.Context, script *scriptRun) (b *background, begin func()) {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b = &background{
		scriptRun: script.short(), id: "bg_" + calls.RandomHex(8), begun: time.Now(), cancel: cancel, started: make(chan struct{}),
		done: make(chan struct{}),
		out:  x.output(script, backgroundMargins),
	}
	request := script.request()
	request.Background = true
	life := cmp.Or(x.BackgroundLife, DefaultBackgroundLife)
	request.Usual = job.Limits{Wall: min(cmp.Or(request.Usual.Wall, life), life)}
	return b, func() {
		stop := context.AfterFunc(x.life, cancel)
		x.running.Go(func() {
			defer cancel()
			defer stop()
			hooks := run.Progress(script.caller)
			hooks.Started, hooks.Stdin = b.jobStarted, b.openInput
			record, err := x.Engine.Run(running, request, b.out, hooks)
			x.ended(running, b, record, err)
		})
	}
}

// ended records the end of b, and indexes the output unless the call returns it.
func (x *Suite) ended(ctx context.Context, b *background, record *job.Record, err error) {
	b.mu.Lock()
	captured := b.out.Captured()
	b.ended, b.out = time.Now(), nil
	if err != nil {
		b.err = run.Failed(err)
	} else {
		b.ran = &finishedRun{b.scriptRun, record, captured}
	}
	detached, ran := b.detached, b.ran
	b.mu.Unlock()
	b.closeInput()
	close(b.done)
	if !detached {
		return
	}
	x.logEnd(ctx, b)
	if ran == nil {
		return
	}
	var streams []string
	if size(&captured.Stdout) > 0 {
		streams = append(streams, artifact.Stdout)
	}
	if size(&captured.Stderr) > smallOutput {
		streams = append(streams, artifact.Stderr)
	}
	if b.share {
		streams = ran.written()
	}
	b.trim(x.indexLater(context.WithoutCancel(ctx), ran, streams...))
}

// short returns a copy of r without the code and the call's Progress.
func (r *scriptRun) short() *scriptRun {
	caller := r.caller
	caller.Progress = nil // it refers to the finished call
	return &scriptRun{
		tool: r.tool, caller: caller, repo: r.repo, runtime: r.runtime, label: r.label,
		background: r.background, share: r.share, input: r.input,
	}
}

// logEnd logs the end of a job whose call was logged when it returned.
func (x *Suite) logEnd(ctx context.Context, b *background) {
	s := b.status()
	id := ""
	if ran, _ := b.outcome(); ran != nil {
		id = ran.record.Result.ID
	}
	x.Log.InfoContext(ctx, "background job ended", "trace_id", b.caller.Trace, "tool", b.tool, "repo", b.repo,
		"principal", b.caller.Principal, "session", b.caller.Session, "job", id, "id", b.id, "status", string(s.Status),
		"wall_ms", s.DurationMs, "bytes_out", s.StdoutBytes+s.StderrBytes)
}

// trim drops the job's request and the output that can be read from the artifact. skipped is the reason why the output is
// not indexed, nil if it is.
func (b *background) trim(skipped error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if skipped != nil {
		b.skipped = tool.Clean(skipped.Error())
	}
	margin := endedMargins
	if b.ran.out.Handle != "" {
		margin = storedMargins
	}
	short, record := *b.ran, *b.ran.record
	record.Request, record.Decision.Spec = nil, job.Spec{Limits: record.Decision.Spec.Limits}
	short.record = &record
	for _, c := range []*artifact.StreamCapture{&short.out.Stdout, &short.out.Stderr} {
		n := size(c)
		head, tail := c.Head[:min(len(c.Head), margin)], c.Tail[max(0, len(c.Tail)-margin):]
		c.Head, c.Tail = string([]byte(head)), string([]byte(tail))
		c.Between = n - int64(len(head)+len(tail))
	}
	b.ran = &short
}

// detach separates the job from its call. ended reports whether the job has ended.
func (b *background) detach(cancelled bool) (ran *finishedRun, ended bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ended = b.out == nil
	b.detached = !ended && !cancelled
	return b.ran, ended, b.err
}

// signal sends a signal to the job.
func (b *background) signal(s jobSignaling) error {
	b.mu.Lock()
	signaler, ended := b.signaler, b.out == nil
	b.mu.Unlock()
	switch {
	case ended:
		return &tool.Error{Code: tool.CodeInvalid, Message: "id: job " + b.id + " has ended"}
	case signaler == nil:
		return &tool.Error{Code: tool.CodeUnavailable, Message: "job " + b.id + " has not started yet: it is waiting for a slot"}
	}
	var err error
	if s.ends {
		err = signaler.End(int(s.number))
	} else {
		err = signaler.Signal(int(s.number), s.everyone)
	}
	if err != nil {
		return run.Failed(err)
	}
	return nil
}

func (b *background) runs() bool { return b.endedAt().IsZero() }

// endedAt returns when the job ended, or the zero time while it runs.
func (b *background) endedAt() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}
