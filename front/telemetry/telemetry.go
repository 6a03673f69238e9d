// Package telemetry makes OpenTelemetry spans of calls: one for each call of a tool, with a child for each part of
// the life of its jobs. They are written as JSON lines to standard error or a file, or sent to a collector (OTLP over
// HTTP, protobuf), but never to standard output, which belongs to a server's protocol.
//
//   - Calls do not wait for it: an ended span goes into a queue of maxQueue spans, which one goroutine drains. If the
//     queue is full because exporting is too slow, spans are dropped and counted.
//   - A span has names, ids, times, sizes and codes, but never code, arguments, input, output or variables.
//   - Failed exports are reported in the diagnostic log, at most once a minute.
//   - A call's span has the trace id that the call has in the diagnostic and audit logs, whether a client sent it
//     or not. If a client does not sample its trace, its spans are not recorded here either.
//
// The OTLP exporter combines the SDK's translation with a client of this package. The SDK's own client, otlptracehttp,
// links gRPC even for HTTP: with it (v1.47.0), corral-front grows from 21.3 to 26.7 MB, by 26 %. It also reads many more
// OTEL_* variables than those documented here. There is no global state: the SDK's registry of providers stays empty.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Destinations of spans.
const (
	Stderr = "stderr" // as JSON lines to Options.Stderr
	File   = "file"   // as JSON lines to Options.File
	OTLP   = "otlp"   // to a collector
)

const (
	maxQueue = 2048 // spans that wait in the queue, about 6 MB
	maxBatch = 512  // spans exported at once
	// batchTime is how long a span waits for others to form a batch.
	batchTime = time.Second
	// exportTime is the timeout of exporting one batch, retries included.
	exportTime = 10 * time.Second
	// closeTimeout is how long Close waits for the queue to drain.
	closeTimeout = 2 * time.Second
)

// Options configure where spans are exported to.
type Options struct {
	Traces  string // Stderr, File or OTLP
	Service string // service name in each span's resource: "corral"
	Version string // of corral
	// Stderr receives the spans of Stderr. A Write that blocks delays spans only.
	Stderr io.Writer
	// File is an absolute path. The first span creates the file with mode 0600; at 64 MiB it is renamed to File.1,
	// replacing the previous one.
	File string
	// Endpoint is the URL of a collector; /v1/traces is appended. If "", OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is used
	// unchanged, or else OTEL_EXPORTER_OTLP_ENDPOINT, or else http://localhost:4318.
	Endpoint string
	// HeadersFile has headers for the collector, one "NAME: VALUE" per line. It must belong to this user or root, and
	// be readable only by its owner and group. If "", OTEL_EXPORTER_OTLP_TRACES_HEADERS or OTEL_EXPORTER_OTLP_HEADERS
	// is used, if set.
	HeadersFile string
	Getenv      func(name string) string // nil means an empty environment
	Log         *slog.Logger             // nil discards log lines
}

// A Tracer creates spans. It implements calls.Tracer.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	exporter *exporter
}

// Open starts exporting without connecting anywhere yet. An error is about the options.
func Open(o Options) (*Tracer, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Getenv == nil {
		o.Getenv = func(string) string { return "" }
	}
	to, err := o.exporter()
	if err != nil {
		return nil, err
	}
	e := newExporter(to, o.Log)
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(counting{sdktrace.NewBatchSpanProcessor(e,
			sdktrace.WithMaxQueueSize(maxQueue), sdktrace.WithMaxExportBatchSize(maxBatch),
			sdktrace.WithBatchTimeout(batchTime), sdktrace.WithExportTimeout(exportTime),
		), e}),
		sdktrace.WithIDGenerator(ids{}),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", o.Service), attribute.String("service.version", o.Version),
		)),
	)
	return &Tracer{provider: provider, tracer: provider.Tracer("corral", trace.WithInstrumentationVersion(o.Version)), exporter: e}, nil
}

// exporter returns the exporter for batches of spans.
func (o *Options) exporter() (sdktrace.SpanExporter, error) {
	switch o.Traces {
	case Stderr:
		return stdouttrace.New(stdouttrace.WithWriter(o.Stderr))
	case File:
		return stdouttrace.New(stdouttrace.WithWriter(&file{path: o.File}))
	case OTLP:
		c, err := o.collector()
		if err != nil {
			return nil, err
		}
		return otlptrace.NewUnstarted(c), nil
	}
	return nil, fmt.Errorf("traces: must be %s, %s or %s, got %q", Stderr, File, OTLP, o.Traces)
}

// Close exports the queued spans, for two seconds at most. Calls that end later have no span. Closing a nil Tracer
// does nothing.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), closeTimeout, errEnding)
	defer cancel()
	defer t.exporter.stop()
	_ = t.provider.Shutdown(ctx) // the exporter has logged its errors
	t.exporter.last()
}

// errEnding is the cause when Close cancels a slow export.
var errEnding = errors.New("the program is shutting down")
