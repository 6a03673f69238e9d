// Package calls records each call of a tool: its principal, its place in a trace, its repository and its jobs. At the end
// of a call it writes one line to the diagnostic log and, with a Tracer, one span that has the parts of each job below it.
//
// A front-end begins a Call and passes it on in the context. The engine that all its tools share records the jobs, so
// tools need no code for it.
//
// A record never contains code, arguments, input or output, only names, ids, times, sizes and codes, each of bounded length.
package calls

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"corral/internal/text"
	"corral/job"
)

const (
	maxNamed = 16  // jobs named in a line; further ones are only counted
	maxSpans = 128 // jobs per call that are passed to the Tracer
	maxWord  = 256 // bytes of each text
)

// A Tracer receives each call. It must not block. Its methods, and those of its Spans, may be called by several goroutines
// at once.
type Tracer interface {
	// Begin is called when a call begins, with the name of its span and its place in a trace.
	Begin(name string, at Trace, start time.Time) Span
}

// A Span receives the events of one call.
type Span interface {
	// Job is called when a job has ended. That may be after End, if the call did not wait for the job.
	Job(r *job.Record)
	// End is called once, when the call has ended.
	End(s Summary)
}

// A Refuser is a Span that receives refusals which left no record of a job, too.
type Refuser interface {
	// Refused is called when the supervisor or a session refused a job, and corral or the operator must see to the reason.
	Refused(r *job.Refusal)
}

// A Start describes a call when it begins.
type Start struct {
	Tool      string // as named by the client
	Span      string // the span's name, which contains no text of the client
	Principal string
	Session   string
	Trace     Trace
	At        time.Time
}

// A Summary describes a call that has been answered.
type Summary struct {
	Start
	Repo  string        // id of its repository, "" if the call failed before one was chosen
	Jobs  string        // ids separated by commas, then "+N" for N further jobs; "" without a job
	Wall  time.Duration // from Start.At to the answer
	Bytes int           // size of the answer
	Error string        // error code; "" means success
}

// A Call is a call in progress. All methods of a nil Call do nothing.
type Call struct {
	start Start
	span  Span // nil without a Tracer

	mu    sync.Mutex
	repo  string   // guarded by mu
	jobs  []string // guarded by mu: ids, at most maxNamed
	named int      // guarded by mu: number of jobs with an id
	told  int      // guarded by mu: number of records
}

// Begin begins a call. t may be nil.
func Begin(t Tracer, s Start) *Call {
	s.Tool, s.Principal, s.Session = text.Cut(s.Tool, maxWord), text.Cut(s.Principal, maxWord), text.Cut(s.Session, maxWord)
	c := &Call{start: s}
	if t != nil {
		c.span = t.Begin(s.Span, s.Trace, s.At)
	}
	return c
}

type key struct{}

// With returns a context that carries c.
func With(ctx context.Context, c *Call) context.Context { return context.WithValue(ctx, key{}, c) }

// Of returns the call that ctx carries, or nil.
func Of(ctx context.Context) *Call {
	c, _ := ctx.Value(key{}).(*Call)
	return c
}

// Repo records the id of the call's repository. Only the first call of Repo has an effect.
func (c *Call) Repo(id string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.repo == "" {
		c.repo = text.Cut(id, maxWord)
	}
}

// Ran records the outcome of a request of the call. It may be called after End; a nil record is ignored.
func (c *Call) Ran(r *job.Record) {
	if c == nil || r == nil {
		return
	}
	c.Repo(r.Request.Repo)
	c.mu.Lock()
	if r.Result.ID != "" {
		if c.named++; c.named <= maxNamed {
			c.jobs = append(c.jobs, text.Cut(r.Result.ID, maxWord))
		}
	}
	c.told++
	tell := c.span != nil && c.told <= maxSpans
	c.mu.Unlock()
	if tell {
		c.span.Job(r)
	}
}

// Failed records that a request of the call ended without a record. It passes on a *job.Refusal in err; another error is that
// of the call.
func (c *Call) Failed(err error) {
	if c == nil {
		return
	}
	var refusal *job.Refusal
	if r, ok := c.span.(Refuser); ok && errors.As(err, &refusal) {
		r.Refused(refusal)
	}
}

// End writes the call's line to log, unless log is nil, and ends its span. bytes is the size of the answer; code is the
// error code, or "".
func (c *Call) End(ctx context.Context, log *slog.Logger, bytes int, code string) {
	if c == nil {
		return
	}
	s := c.summary(bytes, code)
	if c.span != nil {
		c.span.End(s)
	}
	if log == nil {
		return
	}
	log.LogAttrs(ctx, slog.LevelInfo, "tool call",
		slog.String("trace_id", s.Trace.ID), slog.String("tool", s.Tool), slog.String("repo", s.Repo),
		slog.String("principal", s.Principal), slog.String("session", s.Session), slog.String("job", s.Jobs),
		slog.Int64("wall_ms", s.Wall.Milliseconds()), slog.Int("bytes_out", s.Bytes), slog.String("error", s.Error))
}

func (c *Call) summary(bytes int, code string) Summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	jobs := strings.Join(c.jobs, ",")
	if more := c.named - len(c.jobs); more > 0 {
		jobs += ",+" + strconv.Itoa(more)
	}
	return Summary{Start: c.start, Repo: c.repo, Jobs: jobs, Wall: time.Since(c.start.At), Bytes: bytes, Error: text.Cut(code, maxWord)}
}
