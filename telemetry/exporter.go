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

// quiet is how long after a line about what is lost there is no other.
const quiet = time.Minute

// An exporter tells the log what another one cannot export. To the SDK it never fails: that would have it told by the
// SDK's global handler, each time.
type exporter struct {
	to   sdktrace.SpanExporter
	log  *slog.Logger
	ctx  context.Context // of every export
	stop context.CancelFunc

	ended    atomic.Int64 // spans
	exported atomic.Int64 // spans

	mu   sync.Mutex
	told time.Time // guarded by mu: when the last line was written
	lost int       // guarded by mu: spans that no line has told of
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
		e.tell(len(spans), err)
		return nil
	}
	e.exported.Add(int64(len(spans)))
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (e *exporter) Shutdown(ctx context.Context) error { return e.to.Shutdown(ctx) }

func (e *exporter) tell(spans int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost += spans
	if !e.told.IsZero() && time.Since(e.told) < quiet {
		return
	}
	e.log.Warn("spans are not exported", "spans", e.lost, "error", text.Line(err.Error(), maxError))
	e.told, e.lost = time.Now(), 0
}

// maxError is how many bytes of an error a line has: part of it may be what a stranger said, a collector or a proxy before it.
const maxError = 256

// last tells how many spans there were that nobody has.
func (e *exporter) last() {
	if lost := e.ended.Load() - e.exported.Load(); lost > 0 {
		e.log.Warn("spans were lost", "spans", lost)
	}
}

// A counting processor counts spans that ended, for some of them the queue may have no room.
type counting struct {
	sdktrace.SpanProcessor
	e *exporter
}

// OnEnd implements sdktrace.SpanProcessor.
func (c counting) OnEnd(s sdktrace.ReadOnlySpan) {
	c.e.ended.Add(1)
	c.SpanProcessor.OnEnd(s)
}
