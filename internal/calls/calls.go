// Package calls knows a call of a tool while it is under way: whose it is, where it is in somebody's trace, and which
// repository and jobs it had. At its end it is one line of the log and, where there is a Tracer, one span with the parts of
// each job below it.
//
// A front-end begins a Call and has it travel by the context; the engine that all tools of the front-end share notes what
// it ran. No tool has to think of it.
//
// Neither code, arguments, input nor output is ever in it: names, ids, times, sizes and codes are, and each is bounded.
package calls

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"corral/internal/text"
	"corral/job"
)

const (
	maxNamed = 16  // jobs that a line names; of others it has the number
	maxSpans = 128 // jobs whose parts are told to the Tracer
	maxWord  = 256 // bytes of each text
)

// A Tracer is told of each call. It must not block; its methods may be called by several goroutines at once, and so may
// those of its Spans.
type Tracer interface {
	// Begin is told of the beginning: the span's name, and where it is in a trace.
	Begin(name string, at Trace, start time.Time) Span
}

// A Span is a Tracer's side of one call.
type Span interface {
	// Job is told of a job when it has ended, which may be after End: the call did not wait for it.
	Job(r *job.Record)
	// End is told of the end, once.
	End(s Summary)
}

// A Start is what is known of a call when it begins.
type Start struct {
	Tool      string // as the client called it
	Span      string // the span's name, which is none of the client's words
	Principal string
	Session   string
	Trace     Trace
	At        time.Time
}

// A Summary is what is known of a call when it has been answered.
type Summary struct {
	Start
	Repo  string        // id of the repository that it was about, "" if it came to none
	Jobs  string        // ids, with a comma between two, and "+N" for N that are not named; "" without a job
	Wall  time.Duration // from Start.At to the answer
	Bytes int           // of the answer
	Error string        // a code; "" is success
}

// A Call is a call under way. The nil Call is nobody's, and notes nothing.
type Call struct {
	start Start
	span  Span // nil without a Tracer

	mu    sync.Mutex
	repo  string   // guarded by mu
	jobs  []string // guarded by mu: ids, at most maxNamed
	named int      // guarded by mu: jobs that have an id
	told  int      // guarded by mu: records
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

// Of returns the call that ctx carries, nil without one.
func Of(ctx context.Context) *Call {
	c, _ := ctx.Value(key{}).(*Call)
	return c
}

// Repo notes the id of the repository that the call is about. Of several the first counts.
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

// Ran notes what became of a request of the call's. It may be called after End; nil is nothing to note.
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

// End writes the call's line, and tells the Tracer. bytes are those of the answer, code is what went wrong. A nil log gets
// no line.
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
