package telemetry

import (
	"context"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const (
	attempts = 3
	// firstPause is the pause before the second attempt; the pause before the third is twice as long.
	firstPause = 500 * time.Millisecond
	// maxPause is the maximum pause that a collector can request with Retry-After.
	maxPause = 5 * time.Second
)

// Start implements otlptrace.Client.
func (c *collector) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *collector) Stop(context.Context) error {
	c.client.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client.
func (c *collector) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// ExportTraceServiceRequest has the same encoding, but its package imports gRPC.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	pause := firstPause
	for n := 1; ; n++ {
		err := c.post(ctx, body)
		after, again := retryable(err)
		if !again || n == attempts || !wait(ctx, max(pause, min(after, maxPause))) {
			return err
		}
		pause *= 2
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
