package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// A seenSpan is a span as written to standard error.
type seenSpan struct {
	Name        string
	SpanContext struct{ TraceID, SpanID string }
	Parent      struct{ SpanID string }
	StartTime   time.Time
	EndTime     time.Time
	Attributes  []struct {
		Key   string
		Value struct{ Value any }
	}
}

func (s *seenSpan) attribute(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return fmt.Sprint(a.Value.Value)
		}
	}
	return ""
}

// seenSpans returns the spans among the lines of a log: those of calls, and the children of each by its span id.
func seenSpans(t *testing.T, text string) (top []*seenSpan, children map[string][]*seenSpan) {
	t.Helper()
	children = map[string][]*seenSpan{}
	for line := range strings.Lines(text) {
		s := &seenSpan{}
		if err := json.Unmarshal([]byte(line), s); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		switch {
		case s.Name == "":
		case strings.Contains(s.Name, "."):
			top = append(top, s)
		default:
			children[s.Parent.SpanID] = append(children[s.Parent.SpanID], s)
		}
	}
	return top, children
}

// end ends a server's input, and returns its diagnostic log.
func (h *host) end() string {
	h.t.Helper()
	_ = h.to.Close()
	select {
	case <-h.ended:
	case <-time.After(sandboxtest.Slow(20 * time.Second)):
		h.t.Fatal("the server did not end with its input")
	}
	return h.log.String()
}

// TestSpansOfJobs checks that a call's span is part of the client's trace and has children for the parts of each of its
// jobs, with their times; that the diagnostic log and the audit log have the same trace and job; and that none of them
// contains code.
func TestSpansOfJobs(t *testing.T) {
	_, d, h := served(t, "telemetry: {traces: stderr}\nruntime: {max_duration: 1m}\n")
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	call := func(name string, arguments, meta object) {
		h.must("tools/call", object{"name": name, "arguments": arguments, "_meta": meta})
	}
	call("runtime_execute", object{"repoId": "app", "runtime": "shell", "code": "sleep 0.2; echo secret-output; exit 3", "timeoutMs": 20000},
		object{"traceparent": "00-" + trace + "-" + parent + "-01"})
	call("ctx_batch_execute", object{"commands": []object{{"label": "a", "command": "echo secret"}, {"label": "b", "command": "true"}}, "queries": []string{"secret"}}, object{})
	call("runtime_execute", object{"repoId": "app", "runtime": "shell", "code": "secret", "timeoutMs": 600000}, object{}) // denied
	call("runtime_query_output", object{"artifactHandle": "none", "queryTerms": []string{"secret"}}, object{"traceparent": "00-" + trace + "-" + parent + "-00"})
	log := h.end()
	if len(h.stray) > 0 {
		t.Errorf("unexpected lines on standard output: %q", h.stray)
	}
	if strings.Contains(log, "secret") {
		t.Errorf("the log contains code:\n%s", log)
	}
	top, children := seenSpans(t, log)
	if len(top) != 3 {
		t.Fatalf("%d spans of calls:\n%s", len(top), log)
	}
	first := top[0]
	if first.Name != "tools.runtime.execute" || first.SpanContext.TraceID != trace || first.Parent.SpanID != parent || first.attribute("error") != "" {
		t.Errorf("%+v", first)
	}
	inOrder(t, first, children[first.SpanContext.SpanID])
	if wall := first.attribute("wall_ms"); len(wall) < 3 {
		t.Errorf("wall_ms: %s", wall)
	}
	line := lineOf(t, log, trace)
	job := first.attribute("job")
	if line["job"] != job || line["repo"] != "app" || !strings.Contains(job, "job-") {
		t.Errorf("%v, span %s", line, job)
	}
	if text := auditText(t, d); !strings.Contains(text, trace) || !strings.Contains(text, `"`+job+`"`) {
		t.Errorf("the audit log has neither trace nor job:\n%s", text)
	}
	batch := top[1]
	if parts := children[batch.SpanContext.SpanID]; batch.Name != "tools.ctx.batchExecute" || len(parts) != 8 || strings.Count(batch.attribute("job"), ",") != 1 {
		t.Errorf("%+v\n%d parts", batch, len(parts))
	}
	denied := top[2]
	if parts := children[denied.SpanContext.SpanID]; len(parts) != 1 || parts[0].Name != "decision" || parts[0].attribute("rule") != "timeout" {
		t.Errorf("%+v\n%+v", denied, parts)
	}
}

// inOrder checks that a job's parts follow each other within their call, and that their durations are plausible.
func inOrder(t *testing.T, call *seenSpan, parts []*seenSpan) {
	t.Helper()
	slices.SortFunc(parts, func(a, b *seenSpan) int { return a.StartTime.Compare(b.StartTime) })
	var names []string
	at := call.StartTime
	for _, s := range parts {
		names = append(names, s.Name)
		if s.StartTime.Before(at) || s.EndTime.Before(s.StartTime) || s.attribute("job") != call.attribute("job") {
			t.Errorf("%s begins at %v, before %v, or is another job's: %+v", s.Name, s.StartTime, at, s)
		}
		at = s.EndTime
	}
	if strings.Join(names, " ") != "decision start run store" || at.After(call.EndTime) {
		t.Fatalf("parts %q, to %v; the call to %v", names, at, call.EndTime)
	}
	run := parts[2]
	if took := run.EndTime.Sub(run.StartTime); took < 200*time.Millisecond || run.attribute("exit_code") != "3" || run.attribute("status") != "failure" {
		t.Errorf("%v: %+v", took, run)
	}
}

// lineOf returns the line of the first call of a trace.
func lineOf(t *testing.T, text, trace string) map[string]any {
	t.Helper()
	for line := range strings.Lines(text) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if m["msg"] == "tool call" && m["trace_id"] == trace {
			return m
		}
	}
	t.Fatalf("no call of trace %s:\n%s", trace, text)
	return nil
}

// auditText returns a supervisor's audit log.
func auditText(t *testing.T, d *sandboxtest.Supervisor) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(d.State, "audit", "*.jsonl"))
	var all strings.Builder
	for _, file := range files {
		text, failed := os.ReadFile(file)
		if err == nil {
			err = failed
		}
		all.Write(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
