// Package callstest watches what a server tells of the calls of its tools: their lines in the log, and their spans.
package callstest

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"corral/internal/calls"
	"corral/internal/test/sandboxtest"
	"corral/job"
)

// Keys are those that the line of every call has.
var Keys = []string{"time", "level", "msg", "trace_id", "tool", "repo", "principal", "session", "job", "wall_ms", "bytes_out", "error"}

// A Watcher is a log of JSON lines, and a calls.Tracer. The zero value has seen nothing.
type Watcher struct {
	mu    sync.Mutex
	lines []map[string]any // guarded by mu: of calls
	spans []Span           // guarded by mu: of calls that ended
	jobs  int              // guarded by mu: that the Tracer was told of
}

// A Span is what the Tracer was told of one call.
type Span struct {
	Name string
	At   calls.Trace
	End  calls.Summary
}

// Write takes a line of the log.
func (w *Watcher) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var m map[string]any
	err := json.Unmarshal(line, &m)
	if m["msg"] == "tool call" {
		w.lines = append(w.lines, m)
	}
	return len(line), err
}

// Begin implements calls.Tracer.
func (w *Watcher) Begin(name string, at calls.Trace, _ time.Time) calls.Span {
	return &under{w, Span{Name: name, At: at}}
}

// An under is a span whose call is under way.
type under struct {
	w    *Watcher
	span Span
}

func (u *under) Job(*job.Record) {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	u.w.jobs++
}

func (u *under) End(sum calls.Summary) {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	u.span.End = sum
	u.w.spans = append(u.w.spans, u.span)
}

// Call waits for the n-th call, from 0, and returns its line and its span.
func (w *Watcher) Call(t *testing.T, n int) (line map[string]any, span Span) {
	t.Helper()
	w.wait(t, n+1, func(calls int) bool { return calls > n })
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines[n], w.spans[n]
}

// Last waits until there were n calls and no more, and returns the last one, with how many jobs there were so far.
func (w *Watcher) Last(t *testing.T, n int) (line map[string]any, span Span, jobs int) {
	t.Helper()
	w.wait(t, n, func(calls int) bool { return calls == n })
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines[n-1], w.spans[n-1], w.jobs
}

// wait waits for lines and spans, of both as many as will do; n is for people.
func (w *Watcher) wait(t *testing.T, n int, enough func(calls int) bool) {
	t.Helper()
	sandboxtest.Eventually(t, 10*time.Second, fmt.Sprintf("the line of call %d", n), func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return enough(len(w.lines)) && enough(len(w.spans))
	})
}
