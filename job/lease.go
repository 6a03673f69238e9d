package job

import (
	"cmp"
	"context"
	"errors"
	"os"
	"syscall"
)

// A SessionProvider provides the sessions that requests run in; package session implements it for front-ends.
type SessionProvider interface {
	// Acquire returns the session in which r is to run according to spec, and opens one if there is none. The error
	// is a *Refusal, wraps ErrUnavailable, or is the error of ctx.
	Acquire(ctx context.Context, r *Request, spec Spec) (Lease, error)
}

// A Lease is the use of a session by one job.
type Lease struct {
	ID string // of the session
	// Replaced says why an earlier session of the client for the same use has ended whose files are not in this one; "" if there
	// was none.
	Replaced SessionEnd
	// MakeRoom ends another session that is idle, and reports whether there was one: the disk has no room to open the kept layer of
	// this one again. Nil is none.
	MakeRoom func() bool
	// Return gives the session back; it must be called exactly once. gone reports that the supervisor no longer has
	// the session.
	Return func(gone bool)
}

// A SessionEnd is the reason why a front-end has no longer a session of a client, as metrics name it.
type SessionEnd string

// The reasons.
const (
	SessionExpired SessionEnd = "idle"    // no job used it for the idle time
	SessionForRoom SessionEnd = "room"    // the disk had no room for another session
	SessionForMore SessionEnd = "number"  // its principal opened more than it may have at once, or another one more than the server may
	SessionRetired SessionEnd = "retired" // its repository was not served any more
	SessionGone    SessionEnd = "gone"    // the supervisor has it no longer: a person or a restart has ended it
)

// SessionEnds are all reasons.
var SessionEnds = []SessionEnd{SessionExpired, SessionForRoom, SessionForMore, SessionRetired, SessionGone}

// String says for people what happened to the session, and what of the configuration to change.
func (e SessionEnd) String() string {
	switch e {
	case SessionExpired:
		return "the previous session expired: no job used it for its idle time (sandbox.session_timeout, http.session_idle)"
	case SessionForRoom:
		return "the previous session was ended while idle, because the disk of the sessions had no room for another one (layers.reserve)"
	case SessionForMore:
		return "the previous session was ended while idle, because more sessions were opened than there may be at once (sandbox.max_sessions)"
	case SessionRetired:
		return "the previous session was ended, because its repository was not served any more"
	case "":
		return ""
	}
	return "the previous session was ended by the supervisor or by a person"
}

// errNoSessions is returned by a front-end without a SessionProvider.
var errNoSessions = errors.New("this front-end has no sessions")

// launch runs spec, in a session if it needs one. It takes ownership of stdio.
func (e *Engine) launch(ctx context.Context, record *Record, spec Spec, stdio Stdio) (Result, error) {
	if r := record.Request; spec.Session != "" || spec.Workspace != Overlay && !r.Root && !r.Share {
		return e.attempt(ctx, record, spec, stdio)
	}
	again, ok := stdio.again(record.Request)
	result, next, err := e.inSession(ctx, record, spec, stdio)
	if next == noAttempt || !ok {
		again.close()
		return result, err
	}
	if next == inAnother {
		record.SessionReplaced = SessionGone
	}
	result, _, err = e.inSession(ctx, record, spec, again)
	return result, err
}

// An attempt is another one that may succeed after a job was refused.
type attempt int

const (
	noAttempt attempt = iota
	// inAnother: the supervisor has ended the session, or the session's repository no longer exists. A directory that was removed
	// and created again is another one, which only a new session finds.
	inAnother
	inSame // room was made for the session's layer
)

// inSession runs spec in a session of the request's client.
func (e *Engine) inSession(ctx context.Context, record *Record, spec Spec, stdio Stdio) (result Result, next attempt, err error) {
	lease, err := e.acquire(ctx, record, spec)
	if err != nil {
		stdio.close()
		result, err = e.notLent(ctx, record, err)
		return result, noAttempt, err
	}
	record.SessionReplaced = cmp.Or(record.SessionReplaced, lease.Replaced)
	spec.Session = lease.ID
	if result, err = e.attempt(ctx, record, spec, stdio); err == nil {
		record.Session = lease.ID
		e.listChanges(ctx, record, spec)
	}
	next = lease.next(err)
	lease.Return(next == inAnother)
	return result, next, err
}

// next returns the attempt that may succeed after this error.
func (l *Lease) next(err error) attempt {
	var refusal *Refusal
	switch {
	case !errors.As(err, &refusal) || refusal.Step != "session" && refusal.Step != "repo":
		return noAttempt
	case refusal.Errno != int(syscall.ENOSPC):
		return inAnother
	case l.MakeRoom != nil && l.MakeRoom():
		return inSame
	}
	return noAttempt
}

// notLent records a request for which no session could be acquired.
func (e *Engine) notLent(ctx context.Context, record *Record, err error) (Result, error) {
	cancelled := ctx.Err() != nil
	if record.Message = err.Error(); cancelled {
		record.Message = "cancelled before it started"
	}
	switch written := e.denied(ctx, record); {
	case written != nil:
		return Result{}, written
	case cancelled:
		return Result{Status: Cancelled, ExitCode: -1}, nil
	}
	return Result{}, err
}

// listChanges records what the session's jobs have changed so far.
func (e *Engine) listChanges(ctx context.Context, record *Record, spec Spec) {
	if spec.Workspace != Overlay || record.Request.Root || e.Changes == nil || ctx.Err() != nil {
		return
	}
	var err error
	if record.Changes, err = e.Changes(ctx, spec); err != nil {
		record.Changes, record.ChangesReason = nil, err.Error()
	}
}

func (e *Engine) acquire(ctx context.Context, record *Record, spec Spec) (Lease, error) {
	if e.Sessions == nil {
		return Lease{}, errNoSessions
	}
	return e.Sessions.Acquire(ctx, record.Request, spec)
}

// again duplicates the streams for a second attempt. It returns ok = false for streamed input: the other process
// writing to it must notice when nobody reads.
func (s Stdio) again(r *Request) (two Stdio, ok bool) {
	if r.Streamed {
		return Stdio{}, false
	}
	var errs [3]error
	two.Stdin, errs[0] = duplicate(s.Stdin)
	two.Stdout, errs[1] = duplicate(s.Stdout)
	two.Stderr, errs[2] = duplicate(s.Stderr)
	two.Terminal, two.Started = s.Terminal, s.Started
	if errors.Join(errs[:]...) != nil {
		two.close()
		return Stdio{}, false
	}
	return two, true
}

func duplicate(f *os.File) (*os.File, error) {
	if f == nil {
		return nil, nil
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd uintptr
	var errno syscall.Errno
	err = raw.Control(func(from uintptr) {
		fd, _, errno = syscall.Syscall(syscall.SYS_FCNTL, from, syscall.F_DUPFD_CLOEXEC, 3)
	})
	if err == nil && errno != 0 {
		err = os.NewSyscallError("fcntl", errno)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(fd, f.Name()), nil
}

// close closes the streams that are set.
func (s Stdio) close() {
	for _, f := range []*os.File{s.Stdin, s.Stdout, s.Stderr} {
		_ = f.Close() // Close of a nil *os.File does nothing but return an error
	}
}
