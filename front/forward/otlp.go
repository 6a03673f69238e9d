package forward

import (
	"context"
	"errors"
	"strconv"
	"time"

	"corral/front/otlp"
)

// A collector is a receiver by OTLP.
type collector struct {
	to       *otlp.LogCollector
	patience time.Duration
}

func newCollector(o *Options) (*collector, error) {
	to, err := otlp.NewLogCollector(otlp.LogOptions{
		Endpoint: o.To, Headers: o.Headers, Service: "corral-audit", Version: o.Version, Host: o.Host, TLS: o.TLS,
	})
	return &collector{to, o.Patience}, err
}

func (c *collector) close() { c.to.Close() }

// severities are those of OpenTelemetry for the numbers of syslog.
var severities = map[int]int{warning: 13, notice: 10, informational: 9}

// send implements receiver. A status that may be about the collector, and not about the batch, is no reason to drop anything: a token
// may have expired.
func (c *collector) send(ctx context.Context, batch []message) error {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	list := make([]otlp.LogRecord, len(batch))
	for i, m := range batch {
		list[i] = otlp.LogRecord{
			Time: m.time, Severity: severities[m.severity()], Event: "corral.audit." + m.event, Trace: m.trace, Body: m.text,
			Attributes: []string{"corral.seq", strconv.FormatUint(m.seq, 10), "corral.event", m.event, "corral.instance", m.instance},
		}
	}
	err := c.to.Send(ctx, list)
	var rejected *otlp.RejectedError
	switch {
	case errors.As(err, &rejected):
		return &rejection{count: int(min(rejected.Count, int64(len(batch)))), rest: true}
	case otlp.Unacceptable(err):
		return &rejection{count: len(batch)}
	}
	return err
}

// retryAfter returns the pause that a collector asks for with an error, 0 if none.
func retryAfter(err error) time.Duration {
	after, _ := otlp.Retryable(err)
	return after
}
