package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"corral/internal/text"
)

// reportInterval is the minimum time between two log lines about lost spans.
const reportInterval = time.Minute

// An exporter logs spans that the wrapped exporter cannot export. It never returns an error to the SDK, which would
// report each one through its global handler.
type exporter struct {
	to   sdktrace.SpanExporter
	log  *slog.Logger
	ctx  context.Context // ends every export when it is cancelled
	stop context.CancelFunc

	ended    atomic.Int64 // spans
	exported atomic.Int64 // spans

	mu     sync.Mutex
	logged time.Time // guarded by mu: time of the last log line
	lost   int       // guarded by mu: lost spans not yet logged
}

func newExporter(to sdktrace.SpanExporter, log *slog.Logger) *exporter {
	e := &exporter{to: to, log: log}
	e.ctx, e.stop = context.WithCancel(context.Background())
	return e
}

// ExportSpans implements sdktrace.SpanExporter.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	if err := e.to.ExportSpans(ctx, spans); err != nil {
		e.report(len(spans), err)
		return nil
	}
	e.exported.Add(int64(len(spans)))
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (e *exporter) Shutdown(ctx context.Context) error { return e.to.Shutdown(ctx) }

func (e *exporter) report(spans int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost += spans
	if !e.logged.IsZero() && time.Since(e.logged) < reportInterval {
		return
	}
	e.log.Warn("spans are not exported", "spans", e.lost, "error", text.Line(err.Error(), maxError))
	e.logged, e.lost = time.Now(), 0
}

// maxError is the maximum length in bytes of an error in a log line. It may contain text of a collector or a proxy.
const maxError = 256

// last logs how many spans were never exported.
func (e *exporter) last() {
	if lost := e.ended.Load() - e.exported.Load(); lost > 0 {
		e.log.Warn("spans were lost", "spans", lost)
	}
}

// A counting processor counts ended spans, including those for which the queue has no room.
type counting struct {
	sdktrace.SpanProcessor
	e *exporter
}

// OnEnd implements sdktrace.SpanProcessor.
func (c counting) OnEnd(s sdktrace.ReadOnlySpan) {
	c.e.ended.Add(1)
	c.SpanProcessor.OnEnd(s)
}
