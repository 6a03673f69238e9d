package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const (
	attempts    = 3
	attemptTime = 5 * time.Second
	// firstPause is the pause before the second attempt; the pause before the third is twice as long.
	firstPause = 500 * time.Millisecond
	// maxPause is the maximum pause that a collector can request with Retry-After.
	maxPause  = 5 * time.Second
	maxAnswer = 64 << 10 // bytes read of an answer
)

// A collector sends spans to an OTLP collector: OTLP 1.x over HTTP, binary protobuf
// (opentelemetry.io/docs/specs/otlp). It implements otlptrace.Client.
type collector struct {
	url    string
	head   http.Header
	client *http.Client
}

// collector returns the collector that the options configure.
func (o *Options) collector() (*collector, error) {
	u, err := o.url()
	if err != nil {
		return nil, err
	}
	head, err := o.headers()
	if err != nil {
		return nil, err
	}
	if len(head) > 0 && u.Scheme != "https" && !loopback(u.Hostname()) {
		return nil, fmt.Errorf("headers must not be sent to %s unencrypted\nhint: use https", u.Host)
	}
	head.Set("Content-Type", "application/x-protobuf")
	head.Set("User-Agent", "corral/"+o.Version)
	return &collector{url: u.String(), head: head, client: &http.Client{
		Timeout: attemptTime,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConns: 2, IdleConnTimeout: time.Minute,
			TLSHandshakeTimeout: attemptTime, MaxResponseHeaderBytes: maxAnswer,
		},
		// Spans and headers must not reach any host but the configured one.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

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
		var again *retryableError
		err := c.post(ctx, body)
		if err == nil || n == attempts || !errors.As(err, &again) {
			return err
		}
		if !wait(ctx, max(pause, min(again.after, maxPause))) {
			return err
		}
		pause *= 2
	}
}

// A retryableError is an error after which the same request may be sent again.
type retryableError struct {
	error
	after time.Duration // that the collector requested
}

// Unwrap returns the underlying error.
func (e *retryableError) Unwrap() error { return e.error }

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

// post sends a batch once.
func (c *collector) post(ctx context.Context, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header = c.head.Clone()
	answer, err := c.client.Do(r)
	if err != nil {
		var whole *url.Error // its text contains the whole URL, which may have secrets
		if errors.As(err, &whole) {
			err = whole.Err
		}
		return &retryableError{error: fmt.Errorf("POST %s: %s", shownURL(c.url), withoutUserInfo(err))}
	}
	defer func() { _ = answer.Body.Close() }()
	reply, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	// Everything in the answer but its status code is arbitrary text from the collector and stays out of the error.
	failed := fmt.Errorf("POST %s: status %d", shownURL(c.url), answer.StatusCode)
	switch code := answer.StatusCode; {
	case code >= 200 && code < 300:
		if n := rejected(reply); err == nil && n > 0 && answer.Header.Get("Content-Type") == c.head.Get("Content-Type") {
			return fmt.Errorf("the collector rejected %d spans", n)
		}
		return nil
	case code == http.StatusTooManyRequests, code == http.StatusBadGateway, code == http.StatusServiceUnavailable,
		code == http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After")) // a date is ignored
		return &retryableError{failed, time.Duration(min(max(seconds, 0), 3600)) * time.Second}
	}
	return failed
}

// withoutUserInfo returns the text of an error from sending, unless it may contain a user name or password. Only an
// address with credentials contains an @; the collector's address has none, but a proxy's may.
func withoutUserInfo(err error) string {
	if text := err.Error(); !strings.Contains(text, "@") {
		return text
	}
	return "sending failed; the reason is withheld because it contains a user name"
}

// rejected returns how many spans an answer reports as rejected:
// ExportTraceServiceResponse.partial_success.rejected_spans.
func rejected(answer []byte) int64 {
	partial := field(answer, 1)
	for len(partial) > 0 {
		number, kind, n := protowire.ConsumeTag(partial)
		if n < 0 {
			return 0
		}
		if number == 1 && kind == protowire.VarintType {
			v, n := protowire.ConsumeVarint(partial[n:])
			if n < 0 {
				return 0
			}
			return int64(v)
		}
		skip := protowire.ConsumeFieldValue(number, kind, partial[n:])
		if skip < 0 {
			return 0
		}
		partial = partial[n+skip:]
	}
	return 0
}

// field returns the bytes of a message's field, nil if it is missing.
func field(message []byte, wanted protowire.Number) []byte {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil
		}
		if number == wanted && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message[n:])
			return value
		}
		skip := protowire.ConsumeFieldValue(number, kind, message[n:])
		if skip < 0 {
			return nil
		}
		message = message[n+skip:]
	}
	return nil
}

// shownURL returns a URL without the parts that may contain secrets.
func shownURL(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "the collector"
	}
	return u.Scheme + "://" + u.Host + u.EscapedPath()
}
