package telemetry

import (
	"context"
	"crypto/rand"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"corral/internal/calls"
	"corral/job"
)

// A span is the span of one call.
type span struct {
	t   *Tracer
	ctx context.Context // contains the span
	trace.Span
}

// Begin implements calls.Tracer.
func (t *Tracer) Begin(name string, at calls.Trace, start time.Time) calls.Span {
	ctx := context.WithValue(context.Background(), traceKey{}, at.ID)
	if parent, ok := parentOf(at); ok {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	ctx, s := t.tracer.Start(ctx, name, trace.WithTimestamp(start), trace.WithSpanKind(trace.SpanKindServer))
	return &span{t, ctx, s}
}

// parentOf returns the client's span that a call is part of.
func parentOf(at calls.Trace) (trace.SpanContext, bool) {
	var c trace.SpanContextConfig
	var errs [2]error
	c.TraceID, errs[0] = trace.TraceIDFromHex(at.ID)
	c.SpanID, errs[1] = trace.SpanIDFromHex(at.Parent)
	if errs[0] != nil || errs[1] != nil {
		return trace.SpanContext{}, false
	}
	c.TraceFlags = c.TraceFlags.WithSampled(at.Sampled)
	c.TraceState, _ = trace.ParseTraceState(at.State) // an invalid state is ignored (Trace Context, 3.3)
	c.Remote = true
	return trace.NewSpanContext(c), true
}

// Job implements calls.Span. The parts of the job have already ended, so their spans get explicit times.
func (s *span) Job(r *job.Record) {
	if !s.SpanContext().IsSampled() {
		return
	}
	for _, part := range r.Parts() {
		_, child := s.t.tracer.Start(s.ctx, part.Name, trace.WithTimestamp(part.From), trace.WithAttributes(partAttributes(r, part.Name)...))
		child.End(trace.WithTimestamp(part.To))
	}
}

// partAttributes returns the attributes of a part's span.
func partAttributes(r *job.Record, part string) []attribute.KeyValue {
	list := []attribute.KeyValue{attribute.String("job", r.Result.ID)}
	switch part {
	case job.PartDecision:
		if rule := r.Decision.Rule; rule != "" {
			list = append(list, attribute.String("rule", rule))
		}
	case job.PartStart:
		list = append(list, attribute.Int64("queued_ms", r.Queued.Milliseconds()))
		if r.Refusal != nil {
			list = append(list, attribute.String("step", r.Refusal.Step))
		}
	case job.PartRun:
		list = append(list, attribute.String("status", string(r.Status)), attribute.Int("exit_code", r.Result.ExitCode))
		if r.Result.Limit != "" {
			list = append(list, attribute.String("limit", r.Result.Limit))
		}
	}
	return list
}

// End implements calls.Span.
func (s *span) End(sum calls.Summary) {
	s.SetAttributes(
		attribute.String("trace_id", sum.Trace.ID), attribute.String("tool", sum.Tool), attribute.String("repo", sum.Repo),
		attribute.String("principal", sum.Principal), attribute.String("job", sum.Jobs),
		attribute.Int64("wall_ms", sum.Wall.Milliseconds()), attribute.Int("bytes_out", sum.Bytes),
		attribute.String("error", sum.Error),
	)
	if sum.Error != "" {
		s.SetStatus(codes.Error, sum.Error)
	}
	s.Span.End(trace.WithTimestamp(sum.At.Add(sum.Wall)))
}

type traceKey struct{}

// ids generates span and trace ids; a new trace gets the id of its call.
type ids struct{}

// NewIDs implements sdktrace.IDGenerator.
func (i ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	given, _ := ctx.Value(traceKey{}).(string)
	id, err := trace.TraceIDFromHex(given)
	if err != nil {
		_, _ = rand.Read(id[:]) // never fails: crypto/rand
	}
	return id, i.NewSpanID(ctx, id)
}

// NewSpanID implements sdktrace.IDGenerator.
func (ids) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	_, _ = rand.Read(id[:])
	return id
}
