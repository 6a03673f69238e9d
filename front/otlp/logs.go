package otlp

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/proto"
)

// A LogRecord is a record for a collector of logs.
type LogRecord struct {
	Time     time.Time
	Severity int    // 1 to 24, as the data model of OpenTelemetry's logs numbers them
	Event    string // name of the kind of record
	Trace    string // id of its trace, 32 hexadecimal digits; "" if it has none
	Body     string
	// Attributes are names, each followed by its value.
	Attributes []string
}

// A LogCollector sends log records to an OTLP collector.
type LogCollector struct {
	to       *Collector
	resource *resourcepb.Resource
	scope    *commonpb.InstrumentationScope
}

// LogOptions configure a LogCollector.
type LogOptions struct {
	Endpoint string // URL, to which /v1/logs is added
	// Headers are the content of a headers file: "NAME: VALUE" per line.
	Headers          string
	Service, Version string
	Host             string      // name of this machine
	TLS              *tls.Config // nil is the default
}

// NewLogCollector connects nowhere yet. An error is about the options.
func NewLogCollector(o LogOptions) (*LogCollector, error) {
	u, err := endpoint("the collector's address", o.Endpoint, logsPath)
	if err != nil {
		return nil, err
	}
	head, err := headers("headers_file", strings.Split(o.Headers, "\n"), ":", func(s string) (string, error) { return s, nil })
	if err != nil {
		return nil, err
	}
	to, err := newCollector(u, head, o.Version, o.TLS)
	if err != nil {
		return nil, err
	}
	return &LogCollector{
		to, &resourcepb.Resource{Attributes: pairs("service.name", o.Service, "service.version", o.Version, "host.name", o.Host)},
		&commonpb.InstrumentationScope{Name: "corral/audit", Version: o.Version},
	}, nil
}

// Send sends a batch once, with the errors of Post.
func (c *LogCollector) Send(ctx context.Context, batch []LogRecord) error {
	list := make([]*logspb.LogRecord, len(batch))
	for i, r := range batch {
		list[i] = &logspb.LogRecord{
			TimeUnixNano: nanoseconds(r.Time), ObservedTimeUnixNano: nanoseconds(time.Now()), SeverityNumber: logspb.SeverityNumber(r.Severity),
			EventName: r.Event, Body: stringValue(r.Body), Attributes: pairs(r.Attributes...),
		}
		if id, err := hex.DecodeString(r.Trace); err == nil && len(id) == 16 {
			list[i].TraceId = id
		}
	}
	// ExportLogsServiceRequest has the same encoding, but its package imports gRPC.
	body, err := proto.Marshal(&logspb.LogsData{ResourceLogs: []*logspb.ResourceLogs{{
		Resource: c.resource, ScopeLogs: []*logspb.ScopeLogs{{Scope: c.scope, LogRecords: list}},
	}}})
	if err != nil {
		return err
	}
	return c.to.Post(ctx, body)
}

// Close closes idle connections.
func (c *LogCollector) Close() { c.to.Close() }

// Unacceptable reports whether an error of Send says that the batch, or a record in it, will never be accepted.
func Unacceptable(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && (status.Code == http.StatusBadRequest || status.Code == http.StatusRequestEntityTooLarge)
}

func nanoseconds(t time.Time) uint64 { return uint64(max(t.UnixNano(), 0)) }

func stringValue(s string) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: s}}
}

// pairs returns attributes of names, each followed by its value.
func pairs(list ...string) []*commonpb.KeyValue {
	var all []*commonpb.KeyValue
	for i := 0; i+1 < len(list); i += 2 {
		all = append(all, &commonpb.KeyValue{Key: list[i], Value: stringValue(list[i+1])})
	}
	return all
}
