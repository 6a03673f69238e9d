// Package telemetry makes OpenTelemetry spans of calls: one for each call of a tool, and below it one for each part of the
// life of its jobs. They are written as JSON lines to standard error or a file, or sent to a collector (OTLP over HTTP,
// protobuf). Never to standard output, which belongs to the protocol of a server.
//
//   - No call waits for it: a span that ended goes into a queue of maxQueue spans, which one goroutine empties. When the
//     queue is full, because nobody takes what is exported, spans are dropped and counted.
//   - A span has names, ids, times, sizes and codes. Code, arguments, input, output and variables are in none.
//   - What cannot be exported is told in the log, once a minute at most.
//   - A call's span has the trace id that the call has in the logs and in the audit log, whether a client gave it or not.
//     A client that does not record its trace has no spans recorded here.
//
// The exporter for OTLP is made of the SDK's translation and a client of our own: the SDK's client brings gRPC, which it
// does not use, and 6 MB of program. Nothing is global: the SDK's own registry of providers stays empty.
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

// Where spans go.
const (
	Stderr = "stderr" // as JSON lines to Options.Stderr
	File   = "file"   // as JSON lines to Options.File
	OTLP   = "otlp"   // to a collector
)

const (
	maxQueue = 2048 // spans that wait, about 6 MB
	maxBatch = 512  // spans that are exported at once
	// batchTime is how long a span waits for others.
	batchTime = time.Second
	// exportTime is how long one batch may take, further attempts included.
	exportTime = 10 * time.Second
	// endPatience is how long Close waits for what is in the queue.
	endPatience = 2 * time.Second
)

// Options say where spans go.
type Options struct {
	Traces  string // Stderr, File or OTLP
	Service string // what the service is called, in each span's resource: "corral"
	Version string // of corral
	// Stderr is where Stderr writes to. A Write that waits holds up spans, and nothing else.
	Stderr io.Writer
	// File is an absolute path. The file is made by the first span, with mode 0600; with 64 MiB it becomes File.1, and the
	// one that was that is gone.
	File string
	// Endpoint is the URL of a collector, to which /v1/traces is added. "" is OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, which is
	// taken as it is, OTEL_EXPORTER_OTLP_ENDPOINT, or http://localhost:4318.
	Endpoint string
	// HeadersFile has headers for the collector, "NAME: VALUE" in each line. It belongs to this user or root, and
	// nobody but its owner and group may read it.
	// "" is OTEL_EXPORTER_OTLP_TRACES_HEADERS or OTEL_EXPORTER_OTLP_HEADERS, or none.
	HeadersFile string
	Getenv      func(name string) string // nil is an empty environment
	Log         *slog.Logger             // nil drops what there is to tell
}

// A Tracer makes spans. It implements calls.Tracer.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	exporter *exporter
}

// Open begins to export, which waits for nobody. The error is about the options.
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

// exporter returns what takes batches of spans.
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
	return nil, fmt.Errorf("traces go to %s, %s or %s, not to %q", Stderr, File, OTLP, o.Traces)
}

// Close exports what is in the queue, for two seconds at most. Calls that end later have no span. The nil Tracer has
// nothing to close.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), endPatience, errEnding)
	defer cancel()
	defer t.exporter.stop()
	_ = t.provider.Shutdown(ctx) // what it could say is told by the exporter
	t.exporter.last()
}

// errEnding ends an export that takes too long when the program ends.
var errEnding = errors.New("the program ends")
