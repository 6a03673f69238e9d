package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"corral/internal/calls"
	"corral/internal/test/sandboxtest"
)

var sampled = calls.Trace{ID: traceID, Parent: parentID, Sampled: true, State: "a=1"}

// TestOTLP: a collector receives the call and the parts of its job, with their names, times and attributes.
func TestOTLP(t *testing.T) {
	s := newSite(t, nil)
	tracer := open(t, Options{Traces: OTLP, Endpoint: s.url})
	call(tracer, sampled, "DENIED")
	tracer.Close()
	spans := s.all(t)
	top := spans["tools.runtime.execute"]
	if top == nil || len(spans) != 5 {
		t.Fatalf("spans: %v", spans)
	}
	if idOf(top.ParentSpanId) != parentID || top.TraceState != "a=1" || top.Kind != tracepb.Span_SPAN_KIND_SERVER ||
		top.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR || top.Status.GetMessage() != "DENIED" {
		t.Errorf("%v", top)
	}
	for _, row := range []struct {
		name       string
		from, to   int // ms
		attributes string
	}{
		{"tools.runtime.execute", 0, 107, "trace_id=" + traceID + " tool=runtime_execute repo=app principal=user:ada job=job-1 wall_ms=107 bytes_out=55 error=DENIED"},
		{"decision", 0, 2, "job=job-1"},
		{"start", 2, 10, "job=job-1 queued_ms=3"},
		{"run", 10, 100, "job=job-1 status=failure exit_code=3 limit=memory"},
		{"store", 100, 105, "job=job-1"},
	} {
		span := spans[row.name]
		if span == nil {
			t.Errorf("no span %s", row.name)
			continue
		}
		if idOf(span.TraceId) != traceID || row.name != top.Name && idOf(span.ParentSpanId) != idOf(top.SpanId) {
			t.Errorf("%s: trace %x, parent %x", row.name, span.TraceId, span.ParentSpanId)
		}
		if span.StartTimeUnixNano != uint64(at(row.from).UnixNano()) || span.EndTimeUnixNano != uint64(at(row.to).UnixNano()) {
			t.Errorf("%s: from %d to %d", row.name, span.StartTimeUnixNano, span.EndTimeUnixNano)
		}
		got := attributes(span)
		for _, pair := range strings.Fields(row.attributes) {
			name, want, _ := strings.Cut(pair, "=")
			if got[name] != want {
				t.Errorf("%s: %s is %q, want %q", row.name, name, got[name], want)
			}
		}
		if len(got) != len(strings.Fields(row.attributes)) {
			t.Errorf("%s: %v", row.name, got)
		}
	}
	if bytes.Contains(s.raw, []byte("secret")) {
		t.Errorf("a span contains a secret: %q", s.raw)
	}
	if resource := s.spans[0].Resource.String(); !strings.Contains(resource, `"corral"`) || !strings.Contains(resource, `"1.2.3"`) {
		t.Errorf("resource: %s", resource)
	}
	if head := s.heads[0]; s.paths[0] != "/v1/traces" || head.Get("Content-Type") != "application/x-protobuf" || head.Get("User-Agent") != "corral/1.2.3" {
		t.Errorf("%s, %v", s.paths[0], head)
	}
}

// TestTraces: which trace a span belongs to, and when there is no span.
func TestTraces(t *testing.T) {
	for _, tt := range []struct {
		name   string
		trace  calls.Trace
		parent string
		spans  int
		state  string
	}{
		{"a client's", sampled, parentID, 5, "a=1"},
		{"a new one", calls.Trace{ID: traceID, Sampled: true}, "", 5, ""},
		{"not sampled by the client", calls.Trace{ID: traceID, Parent: parentID}, "", 0, ""},
		{"an invalid state", calls.Trace{ID: traceID, Parent: parentID, Sampled: true, State: "=,,"}, parentID, 5, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSite(t, nil)
			tracer := open(t, Options{Traces: OTLP, Endpoint: s.url})
			call(tracer, tt.trace, "")
			tracer.Close()
			spans := s.all(t)
			if len(spans) != tt.spans {
				t.Fatalf("%d spans, want %d", len(spans), tt.spans)
			}
			if top := spans["tools.runtime.execute"]; top != nil && (idOf(top.TraceId) != traceID || idOf(top.ParentSpanId) != tt.parent ||
				top.TraceState != tt.state || top.Status.GetCode() != tracepb.Status_STATUS_CODE_UNSET) {
				t.Errorf("%v", top)
			}
		})
	}
}

// TestJobAfterEnd: a job that ends after its call is still part of it; after Close nothing is exported.
func TestJobAfterEnd(t *testing.T) {
	s := newSite(t, nil)
	tracer := open(t, Options{Traces: OTLP, Endpoint: s.url})
	c := tracer.Begin("tools.ctx.execute", sampled, begun)
	c.End(calls.Summary{Start: calls.Start{Trace: sampled, At: begun}})
	c.Job(record("late"))
	tracer.Close()
	spans := s.all(t)
	if len(spans) != 5 || idOf(spans["run"].ParentSpanId) != idOf(spans["tools.ctx.execute"].SpanId) {
		t.Errorf("%v", spans)
	}
	c.Job(record("later"))
	call(tracer, sampled, "")
	tracer.Close()
	if n := s.requests(); n != 1 {
		t.Errorf("%d requests", n)
	}
	(*Tracer)(nil).Close()
}

// TestStderr: each span is one line of JSON.
func TestStderr(t *testing.T) {
	var out journal
	tracer := open(t, Options{Traces: Stderr, Stderr: &out})
	call(tracer, sampled, "")
	tracer.Close()
	names := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		var span struct {
			Name        string
			SpanContext struct{ TraceID string }
			StartTime   time.Time
		}
		if err := json.Unmarshal([]byte(line), &span); err != nil || span.SpanContext.TraceID != traceID || span.StartTime.Before(begun) {
			t.Errorf("%v: %s", err, line)
		}
		names[span.Name] = true
	}
	if len(names) != 5 || !names["tools.runtime.execute"] || !names["run"] || strings.Contains(out.String(), "secret") {
		t.Errorf("%v\n%s", names, out.String())
	}
}

// TestUnreachable: if the collector is down or never answers, no call waits, memory is bounded, one line is logged,
// and Close returns in time.
func TestUnreachable(t *testing.T) {
	refusing := "http://127.0.0.1:" + sandboxtest.Port(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it accepts connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, url := range map[string]string{"refuses": refusing, "is silent": "http://" + silent.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			var logged journal
			tracer := open(t, Options{Traces: OTLP, Endpoint: url, Log: logged.log()})
			const many = 5_000 // with their parts, ten times the queue
			before := heap()
			for range many {
				call(tracer, calls.Trace{ID: traceID, Sampled: true}, "")
			}
			if held := heap(); held > before+64<<20 {
				t.Errorf("%d MiB are in use", (held-before)>>20)
			}
			tracer.Close()
			if n := strings.Count(logged.String(), "spans are not exported"); n > 1 {
				t.Errorf("%d lines were logged:\n%s", n, logged.String())
			}
			if !strings.Contains(logged.String(), `"spans were lost","spans":25000`) {
				t.Errorf("the log has\n%s", logged.String())
			}
		})
	}
}

// heap returns the number of heap bytes in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestFailuresReportedOncePerMinute: failures are logged at most once a minute, with the number of lost spans.
func TestFailuresReportedOncePerMinute(t *testing.T) {
	var logged journal
	e := newExporter(nil, logged.log())
	defer e.stop()
	for range 5 {
		e.report(10, context.DeadlineExceeded)
	}
	if n := strings.Count(logged.String(), "\n"); n != 1 {
		t.Errorf("%d lines:\n%s", n, logged.String())
	}
	e.mu.Lock()
	e.logged = e.logged.Add(-reportInterval)
	e.mu.Unlock()
	e.report(10, context.DeadlineExceeded)
	if !strings.Contains(logged.String(), `"spans":50`) {
		t.Errorf("the log has\n%s", logged.String())
	}
}

// TestNoGlobalProvider: the SDK's global registry is unchanged.
func TestNoGlobalProvider(t *testing.T) {
	before := otel.GetTracerProvider()
	tracer := open(t, Options{Traces: Stderr, Stderr: &journal{}})
	defer tracer.Close()
	if otel.GetTracerProvider() != before {
		t.Error("there is a global provider")
	}
}

func TestOpen(t *testing.T) {
	for _, o := range []Options{{}, {Traces: "stdout"}, {Traces: OTLP, Endpoint: "nowhere"}, {Traces: OTLP, HeadersFile: "/nonexistent"}} {
		if tracer, err := Open(o); err == nil {
			tracer.Close()
			t.Errorf("%+v was accepted", o)
		}
	}
}
