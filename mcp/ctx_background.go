package mcp

import (
	"context"
	"fmt"
	"sync"
	"time"

	"corral/artifact"
	"corral/job"
)

const (
	// backgroundMargins is how much of the beginning and of the end of each stream is in memory while a job runs.
	backgroundMargins = 128 << 10
	// keptMargins is how much of each is remembered of a job whose output could not be stored.
	keptMargins = 16 << 10
)

// A background is a job that goes on when its call has its reply. Its ctxRun has no code: it is there as long as the job is
// remembered.
type background struct {
	*ctxRun
	id      string
	begun   time.Time
	cancel  context.CancelFunc
	started chan struct{} // closed when there is somebody to signal
	done    chan struct{} // closed when what follows is there

	mu       sync.Mutex
	out      *artifact.Output // guarded by mu: nil when it has ended
	signaler job.Signaler     // guarded by mu: nil before it was started
	ran      *ctxRan          // guarded by mu: nil before it has ended, and if it failed
	err      error            // guarded by mu: corral's own failure
	ended    time.Time        // guarded by mu
	detached bool             // guarded by mu: its call has had its reply
	skipped  string           // guarded by mu: why its output is not indexed
}

// A lead is its output, which learns how to signal it.
type lead struct {
	*artifact.Output
	b *background
}

// Started implements job.Leader.
func (l lead) Started(s job.Signaler) {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if l.b.signaler == nil {
		close(l.b.started)
	}
	l.b.signaler = s
}

var _ job.Leader = lead{}

// background starts run, and replies when wait is over, when it has ended, or if there is no wait when it has started.
func (x *Ctx) background(ctx context.Context, run *ctxRun, wait time.Duration, intent string) (ToolResult, error) {
	run.background = true
	run.timeout = 0
	b, err := x.start(ctx, run)
	if err != nil {
		return ctxFailed(err)
	}
	select { // what is denied, or cannot be started, is said at once
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
		return ToolResult{}, ctx.Err()
	case !ended:
		return b.backgrounded(wait), nil
	case err != nil:
		x.jobs.forget(b)
		return ctxFailed(err)
	}
	x.jobs.forget(b) // it was none that goes on
	return x.answer(ctx, ran, intent)
}

// backgrounded is the reply about a job that goes on.
func (b *background) backgrounded(wait time.Duration) ToolResult {
	status := b.status()
	out, _ := b.live(artifact.Stdout)
	status.Text = fmt.Sprintf("_(process backgrounded after %dms — still running)_\n\nJob: %s. Follow it with ctx_job(id: %q, action: \"status\" | \"output\" | \"signal\").",
		wait.Milliseconds(), b.id, b.id)
	if size(&out) > 0 {
		status.Text = middleOut(&out, ctxRaw) + "\n\n" + status.Text
	}
	return texts(status, status.Text, false)
}

// start begins a job that goes on for as long as its session, or its time.
func (x *Ctx) start(ctx context.Context, run *ctxRun) (*background, error) {
	x.begin()
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b := &background{
		ctxRun: run.short(), id: "bg_" + randomHex(8), begun: time.Now(), cancel: cancel, started: make(chan struct{}), done: make(chan struct{}),
		out: x.output(run, backgroundMargins),
	}
	most := x.MaxBackground
	if most == 0 {
		most = DefaultMaxBackground
	}
	if err := x.jobs.add(b, most, x.MaxBackgroundAll); err != nil {
		cancel()
		return nil, err
	}
	stop := context.AfterFunc(x.life, cancel)
	request := run.request()
	request.Background = true
	request.Usual = job.Limits{Wall: orDuration(x.BackgroundLife, DefaultBackgroundLife)}
	x.running.Go(func() {
		defer cancel()
		defer stop()
		record, err := x.Engine.Run(life, request, lead{b.out, b}, watch(run.caller))
		x.ended(life, b, record, err)
	})
	return b, nil
}

// ended notes what became of b, and has its output indexed if nobody has had it.
func (x *Ctx) ended(ctx context.Context, b *background, record *job.Record, err error) {
	b.mu.Lock()
	captured := b.out.Captured()
	b.ended, b.out = time.Now(), nil
	if err != nil {
		b.err = failed(err)
	} else {
		b.ran = &ctxRan{b.ctxRun, record, captured}
	}
	detached, ran := b.detached, b.ran
	b.mu.Unlock()
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
	if size(&captured.Stderr) > ctxSmall {
		streams = append(streams, artifact.Stderr)
	}
	b.shorten(x.later(context.WithoutCancel(ctx), ran, streams...))
}

// short is what is remembered of r.
func (r *ctxRun) short() *ctxRun {
	caller := r.caller
	caller.Progress = nil // it leads to the call
	return &ctxRun{tool: r.tool, caller: caller, repo: r.repo, runtime: r.runtime, label: r.label, background: r.background}
}

// logEnd writes down the end of a job whose call has had its line long since.
func (x *Ctx) logEnd(ctx context.Context, b *background) {
	s := b.status()
	id := ""
	if ran, _ := b.outcome(); ran != nil {
		id = ran.record.Result.ID
	}
	x.Log.InfoContext(ctx, "job in the background has ended", "trace_id", b.caller.Trace, "tool", b.tool, "repo", b.repo,
		"principal", b.caller.Principal, "session", b.caller.Session, "job", id, "id", b.id, "status", string(s.Status),
		"wall_ms", s.DurationMs, "bytes_out", s.StdoutBytes+s.StderrBytes)
}

// shorten forgets what was run, and what can be read from the artifact. skipped is why that is not indexed, nil if it is.
func (b *background) shorten(skipped error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if skipped != nil {
		b.skipped = clean(skipped.Error())
	}
	most := keptMargins
	if b.ran.out.Handle != "" {
		most = 0
	}
	short, record := *b.ran, *b.ran.record
	record.Request, record.Decision.Spec = nil, job.Spec{Limits: record.Decision.Spec.Limits}
	short.record = &record
	for _, c := range []*artifact.StreamCapture{&short.out.Stdout, &short.out.Stderr} {
		n := size(c)
		head, tail := c.Head[:min(len(c.Head), most)], c.Tail[max(0, len(c.Tail)-most):]
		c.Head, c.Tail = string([]byte(head)), string([]byte(tail))
		c.Between = n - int64(len(head)+len(tail))
	}
	b.ran = &short
}

// detach ends the call's part. ended says whether the job has.
func (b *background) detach(cancelled bool) (ran *ctxRan, ended bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ended = b.out == nil
	b.detached = !ended && !cancelled
	return b.ran, ended, b.err
}

// signal sends a signal to the job.
func (b *background) signal(number int, everyone bool) error {
	b.mu.Lock()
	signaler, ended := b.signaler, b.out == nil
	b.mu.Unlock()
	switch {
	case ended:
		return &Error{Code: CodeInvalid, Message: "id: " + b.id + " has ended"}
	case signaler == nil:
		return &Error{Code: CodeUnavailable, Message: b.id + " has not started yet: it waits for a place"}
	}
	if err := signaler.Signal(number, everyone); err != nil {
		return failed(err)
	}
	return nil
}

func (b *background) runs() bool { return b.endedAt().IsZero() }

// endedAt is when it ended; zero while it runs.
func (b *background) endedAt() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}
