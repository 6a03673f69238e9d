package job

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Policy decides whether a request may run, and turns it into a Spec.
type Policy interface {
	// Decide depends on the request and on the policy's own rules only. An error is corral's own failure; the request
	// does not run then.
	Decide(ctx context.Context, r *Request) (Decision, error)
}

// An Auditor records requests that no job is started for.
type Auditor interface {
	// Denied returns nil only after the record is in the audit log. Of spec, only Args, Files and Secrets count: what would have run.
	Denied(ctx context.Context, c Claim, spec Spec) error
}

// An Output receives the output of one job.
type Output interface {
	// Handle returns the handle under which the output will be found, or "" if it is not kept.
	Handle() string
	// Streams creates the two pipes, starts reading them, and returns the job's ends. It is called at most once.
	Streams() (stdout, stderr *os.File, err error)
	// Written returns the number of bytes the job has written so far.
	Written() (stdout, stderr int64)
	// Finish drains the pipes and stores the output together with the record. It does not wait for other processes
	// that hold a pipe open. It is called once, after Streams or Hooks.Terminal. If the output cannot be stored, the
	// record is still valid.
	Finish(r *Record)
	// Discard releases an Output that was not finished. It may be called at any time.
	Discard()
}

// An Engine takes requests through their life: decide, audit, run, store, audit. The servers of
// corral-front run their jobs through one; the command corral run has no policy of its own, and asks the supervisor itself.
type Engine struct {
	Policy  Policy
	Runner  Runner
	Auditor Auditor
	Queue   *Queue        // nil means no bound
	Quotas  *Quotas       // nil means no bound
	Every   time.Duration // interval between calls of Hooks.Progress; 0 means five seconds
	// Sessions provides sessions to the requests that need one; if nil, such a request fails.
	Sessions SessionProvider
	// Changes lists the changes in the overlay of the session that spec names; nil lists nothing.
	Changes func(ctx context.Context, spec Spec) (*Changes, error)
}

// Run takes r through its life. The supervisor itself records the job's start and end in the audit log; for a request
// that no job is started for, the Auditor has written a record when Run returns. out is finished or discarded by
// then.
//
// A request that was denied, failed or could not be started yields a Record. An error is corral's own failure: the
// audit log cannot be written, the supervisor is unreachable, or it has no capacity. After an error no process of the
// job is left.
func (e *Engine) Run(ctx context.Context, r *Request, out Output, h Hooks) (*Record, error) {
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
	stop := e.reportProgress(out, h.Progress)
	defer stop()
	leave, err := e.enter(ctx, r)
	record.Queued = time.Since(record.Created)
	if limit, ok := errors.AsType[reached](err); ok {
		record.deny(limit.rule, limit.reason)
		return record, e.denied(ctx, record)
	}
	if err != nil {
		record.Status, record.Result.ExitCode = Cancelled, -1
		record.Message = "cancelled before it started"
		return record, e.denied(ctx, record)
	}
	defer leave()
	err = e.run(ctx, record, out, h)
	stdout, stderr := out.Written()
	e.Quotas.wrote(r.Principal, stdout+stderr) // also of a job whose supervisor was lost
	if err != nil {
		return nil, err
	}
	return record, nil
}

// enter waits until the job of r may run, see Queue.Enter. A principal's quota includes its requests that wait.
func (e *Engine) enter(ctx context.Context, r *Request) (leave func(), err error) {
	give, err := e.Quotas.take(r.Principal)
	if err != nil {
		return nil, err
	}
	next, err := e.Queue.Enter(ctx, r.QueueWait)
	if err != nil {
		give()
		return nil, err
	}
	return func() {
		give() // before the next one enters, which can be of the same principal
		next()
	}, nil
}

// deny marks the record as denied by a rule after the policy had allowed the request. The decision gets a new hash:
// SHA-256 of the policy's hash, the rule and the reason, each followed by a NUL.
func (r *Record) deny(rule string, reason string) {
	r.Status = Denied
	r.Decision.Rule, r.Decision.Reasons = rule, append(r.Decision.Reasons, reason)
	sum := sha256.Sum256([]byte(r.Decision.Hash + "\x00" + rule + "\x00" + reason + "\x00"))
	r.Decision.Hash = hex.EncodeToString(sum[:])
}

// denied records a request that no job is started for. It ignores the cancellation of ctx: a client that disconnects
// must not keep its request out of the audit log.
func (e *Engine) denied(ctx context.Context, record *Record) error {
	claim := record.claim("")
	claim.Reason = record.Message
	if len(record.Decision.Reasons) > 0 {
		claim.Reason = record.Decision.Rule + ": " + record.Decision.Reasons[0]
	}
	if err := e.Auditor.Denied(context.WithoutCancel(ctx), claim, record.wanted()); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// wanted returns the program of the request as far as it is known.
func (r *Record) wanted() Spec {
	s := Spec{Args: r.Decision.Spec.Args, Files: r.Decision.Spec.Files, Secrets: r.Decision.Spec.Secrets}
	if len(s.Args) == 0 { // the policy denied the request before it chose a program
		s.Args = slices.Concat(r.Request.Command, r.Request.Args)
		if r.Request.Code != nil {
			s.Files = []File{{Content: *r.Request.Code}}
		}
	}
	return s
}

func (r *Record) claim(artifact string) Claim {
	return Claim{
		Tool: r.Request.Tool, Principal: r.Request.Principal, Session: r.Request.Session, Request: r.Request.ID,
		Repo: r.Request.Repo, Runtime: r.Request.Runtime,
		Decision: r.Decision.Hash, Code: r.Decision.Code, Args: r.Decision.Args, Stdin: r.Decision.Stdin, Artifact: artifact,
		Network: r.Request.Network, Client: r.Request.Client,
	}
}

func (e *Engine) run(ctx context.Context, record *Record, out Output, h Hooks) error {
	spec := record.Decision.Spec
	spec.Claim = record.claim(out.Handle())
	stdio, fed, err := connect(record.Request, out, h)
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

// refused turns the supervisor's refusal into the record's outcome if the client can act on it; otherwise it returns
// the refusal as corral's own failure. The supervisor has already written it to the audit log.
func (r *Record) refused(refusal *Refusal) error {
	r.Refusal, r.Result.ExitCode = refusal, -1
	errno := syscall.Errno(refusal.Errno)
	switch refusal.Step {
	case "cwd":
		r.deny("cwd", directoryRefused(r.Request.Dir, refusal))
	case "limits", "profile", "workspace", "network":
		r.deny("supervisor", strings.ReplaceAll(refusal.Error(), "\nhint: ", "; "))
	case "exec":
		r.Status, r.Message, r.Result.ExitCode = Failure, refusal.About(&r.Decision.Spec).Message, exitNoExec
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

// directoryRefused returns the message for a working directory that cannot be entered, worded as the protocols
// require.
func directoryRefused(dir string, refusal *Refusal) string {
	errno := syscall.Errno(refusal.Errno)
	switch errno {
	case 0:
		return refusal.Message
	case syscall.EXDEV:
		return fmt.Sprintf("Relative CWD %q escapes repository root", dir)
	case syscall.ENOENT:
		return "Working directory does not exist: " + dir
	case syscall.ENOTDIR:
		return "Working directory is not a directory: " + dir
	}
	return fmt.Sprintf("Working directory cannot be entered: %s: %v", dir, errno)
}

// reportProgress calls progress every e.Every until stop is called. progress is not running when stop returns.
func (e *Engine) reportProgress(out Output, progress func(elapsed time.Duration, stdout, stderr int64)) (stop func()) {
	if progress == nil {
		return func() {}
	}
	every := e.Every
	if every == 0 {
		every = 5 * time.Second
	}
	begun, ended := time.Now(), false
	var mu sync.Mutex // guards ended, and is held while progress is called
	var timer *time.Timer
	tick := func() {
		mu.Lock()
		defer mu.Unlock()
		if ended {
			return
		}
		stdout, stderr := out.Written()
		progress(time.Since(begun), stdout, stderr)
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
