package mcptest

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

// CallKeys lists the keys of every call's line.
var CallKeys = []string{"time", "level", "msg", "trace_id", "tool", "repo", "principal", "session", "job", "wall_ms", "bytes_out", "error"}

// A Watcher records the log lines and spans that a server under test writes for calls: it is a writer of JSON log lines and a
// calls.Tracer. The zero value is ready for use.
type Watcher struct {
	mu    sync.Mutex
	lines []map[string]any // guarded by mu: lines of calls
	spans []Span           // guarded by mu: spans of ended calls
	jobs  int              // guarded by mu: number of jobs passed to the Tracer
}

// A Span is a recorded span of one call.
type Span struct {
	Name string
	At   calls.Trace
	End  calls.Summary
}

// Write implements io.Writer. Each Write is one log line.
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
	return &openSpan{w, Span{Name: name, At: at}}
}

// An openSpan is the span of a call in progress.
type openSpan struct {
	w    *Watcher
	span Span
}

func (u *openSpan) Job(*job.Record) {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	u.w.jobs++
}

func (u *openSpan) End(sum calls.Summary) {
	u.w.mu.Lock()
	defer u.w.mu.Unlock()
	u.span.End = sum
	u.w.spans = append(u.w.spans, u.span)
}

// Call waits for the end of call n, counted from 0, and returns its line and its span.
func (w *Watcher) Call(t *testing.T, n int) (line map[string]any, span Span) {
	t.Helper()
	w.wait(t, n+1, func(calls int) bool { return calls > n })
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines[n], w.spans[n]
}

// Last waits until exactly n calls have ended, and returns the last one and the number of jobs so far.
func (w *Watcher) Last(t *testing.T, n int) (line map[string]any, span Span, jobs int) {
	t.Helper()
	w.wait(t, n, func(calls int) bool { return calls == n })
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines[n-1], w.spans[n-1], w.jobs
}

// wait waits until enough accepts the number of lines and the number of spans. n is used in the failure message.
func (w *Watcher) wait(t *testing.T, n int, enough func(calls int) bool) {
	t.Helper()
	sandboxtest.Eventually(t, 10*time.Second, fmt.Sprintf("the line of call %d", n), func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return enough(len(w.lines)) && enough(len(w.spans))
	})
}
