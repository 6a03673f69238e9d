package job

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// A Policy decides what may run, and as what.
type Policy interface {
	// Decide is a function of the request and of what the policy was made from. The error is corral's own failure, which
	// denies.
	Decide(ctx context.Context, r *Request) (Decision, error)
}

// An Auditor writes down what no job tells of.
type Auditor interface {
	// Denied has returned nil when the record is in the log.
	Denied(ctx context.Context, c Claim) error
}

// An Output takes what one job writes.
type Output interface {
	// Handle is what the output will be found by, "" if it is not to be kept.
	Handle() string
	// Streams makes the two pipes, begins to read them, and returns the job's ends. It is called at most once.
	Streams() (stdout, stderr *os.File, err error)
	// Written is how much the job has written so far, in bytes.
	Written() (stdout, stderr int64)
	// Finish takes what is left in the pipes, and stores all with what became of the job. It does not wait for who else
	// holds a pipe open. It is called once after Streams, or where Screen's Terminal stands for it. A record whose output could not be stored is as good as any.
	Finish(r *Record)
	// Discard ends an Output without Finish. It may be called at any time.
	Discard()
}

// A Watch is told, at intervals, how long a request has taken, the wait for a place included, and what its job has written
// so far, in bytes.
type Watch func(elapsed time.Duration, stdout, stderr int64)

// An Engine takes requests through their life: decide, log, run, store, log. Every front-end has its jobs run by one.
type Engine struct {
	Policy  Policy
	Runner  Runner
	Auditor Auditor
	Queue   *Queue        // nil bounds nothing
	Every   time.Duration // between two calls of a Watch; 0 is five seconds
	// Sessions has the sessions of those requests that need one; nil is none, and such a request fails.
	Sessions SessionProvider
	// Changes lists what was changed in the session that spec names, behind its overlay; nil lists nothing.
	Changes func(ctx context.Context, spec Spec) (*Changes, error)
}

// Run takes r through its life. The supervisor writes the job's beginning and end into the audit log itself; what no job
// is made of is written by the Auditor before Run returns. out is finished or discarded then. watch may be nil.
//
// What was denied, could not be started or failed is a Record. The error is corral's own failure: the log cannot be
// written, there is no supervisor, or it has no room. Nothing runs then, or nothing of it is left.
func (e *Engine) Run(ctx context.Context, r *Request, out Output, watch Watch) (*Record, error) {
	defer out.Discard() // does nothing after Finish
	record := &Record{Request: r, Created: time.Now()}
	defer func() { record.Duration = time.Since(record.Created) }()
	var err error
	if record.Decision, err = e.Policy.Decide(ctx, r); err != nil {
		return nil, err
	}
	record.Phases.Decided = time.Now()
	switch d := &record.Decision; {
	case !d.Allowed():
		record.Status = Denied
		return record, e.denied(ctx, record)
	case d.Missing != "":
		record.Status, record.Message, record.Result.ExitCode = Failure, d.Missing, exitMissing
		return record, e.denied(ctx, record)
	}
	stop := e.watch(out, watch)
	defer stop()
	leave, err := e.Queue.Enter(ctx)
	record.Queued = time.Since(record.Created)
	switch {
	case errors.Is(err, ErrFull):
		record.deny("concurrency", err.Error())
		return record, e.denied(ctx, record)
	case err != nil:
		record.Status, record.Result.ExitCode = Cancelled, -1
		record.Message = "cancelled before it started"
		return record, e.denied(ctx, record)
	}
	defer leave()
	if err := e.run(ctx, record, out); err != nil {
		return nil, err
	}
	return record, nil
}

// deny makes the record one of a request that a rule was against after the policy had allowed it. The hash is another
// one then: SHA-256 of the policy's, the rule and the reason, each with a NUL after it.
func (r *Record) deny(rule string, reason string) {
	r.Status = Denied
	r.Decision.Rule, r.Decision.Reasons = rule, append(r.Decision.Reasons, reason)
	sum := sha256.Sum256([]byte(r.Decision.Hash + "\x00" + rule + "\x00" + reason + "\x00"))
	r.Decision.Hash = hex.EncodeToString(sum[:])
}

// denied has a request that no job is made of written down. Nobody waits for less because the client has gone.
func (e *Engine) denied(ctx context.Context, record *Record) error {
	claim := record.claim("")
	claim.Reason = record.Message
	if len(record.Decision.Reasons) > 0 {
		claim.Reason = record.Decision.Rule + ": " + record.Decision.Reasons[0]
	}
	if err := e.Auditor.Denied(context.WithoutCancel(ctx), claim); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

func (r *Record) claim(artifact string) Claim {
	return Claim{
		Tool: r.Request.Tool, Principal: r.Request.Principal, Session: r.Request.Session, Request: r.Request.ID,
		Repo: r.Request.Repo, Runtime: r.Request.Runtime,
		Decision: r.Decision.Hash, Code: r.Decision.Code, Args: r.Decision.Args, Stdin: r.Decision.Stdin, Artifact: artifact,
	}
}

// run runs what was allowed.
func (e *Engine) run(ctx context.Context, record *Record, out Output) error {
	spec := record.Decision.Spec
	spec.Claim = record.claim(out.Handle())
	stdio, fed, err := connect(record.Request, out)
	if err != nil {
		return err
	}
	defer fed()
	record.Result, err = e.launch(ctx, record, spec, stdio)
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		return record.refused(refusal)
	case err != nil:
		return err
	}
	record.Status = record.Result.Status
	out.Finish(record)
	record.Phases.Stored = time.Now()
	return nil
}

// Exit codes of a job whose program could not be started, as shells have them.
const (
	exitNoExec  = 126
	exitMissing = 127
)

// refused makes the supervisor's refusal a record, where the client can do something about it; else it is corral's own
// failure. The supervisor has written it down.
func (r *Record) refused(refusal *Refusal) error {
	r.Refusal, r.Result.ExitCode = refusal, -1
	errno := syscall.Errno(refusal.Errno)
	switch refusal.Step {
	case "cwd":
		r.deny("cwd", directoryRefused(r.Request.Dir, errno))
	case "limits", "profile", "workspace":
		r.deny("supervisor", refusal.Message)
	case "exec":
		r.Status, r.Message, r.Result.ExitCode = Failure, refusal.Message, exitNoExec
		if errno == syscall.ENOENT || errno == syscall.ENOTDIR {
			r.Result.ExitCode = exitMissing
		}
	case "payload", "files":
		r.Status, r.Message = Failure, refusal.Message
	default:
		return refusal
	}
	return nil
}

// directoryRefused is why a working directory cannot be entered, in the words of the protocols.
func directoryRefused(dir string, errno syscall.Errno) string {
	switch errno {
	case syscall.EXDEV:
		return fmt.Sprintf("Relative CWD %q escapes repository root", dir)
	case syscall.ENOENT:
		return "Working directory does not exist: " + dir
	case syscall.ENOTDIR:
		return "Working directory is not a directory: " + dir
	}
	return fmt.Sprintf("Working directory cannot be entered: %s: %v", dir, errno)
}

// watch calls w at intervals, until stop is called.
func (e *Engine) watch(out Output, w Watch) (stop func()) {
	if w == nil {
		return func() {}
	}
	every := e.Every
	if every == 0 {
		every = 5 * time.Second
	}
	begun, ended := time.Now(), false
	var mu sync.Mutex // guards ended, and is held while w is called
	var timer *time.Timer
	tick := func() {
		mu.Lock()
		defer mu.Unlock()
		if ended {
			return
		}
		stdout, stderr := out.Written()
		w(time.Since(begun), stdout, stderr)
		timer.Reset(every)
	}
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(every, tick)
	return func() {
		timer.Stop()
		mu.Lock()
		defer mu.Unlock()
		ended = true
	}
}
