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

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	attemptTime = 5 * time.Second
	maxAnswer   = 64 << 10 // bytes read of an answer
)

// A collector is one address of an OpenTelemetry collector to which batches are posted: OTLP 1.x over HTTP, binary protobuf
// (opentelemetry.io/docs/specs/otlp). It implements otlptrace.Client.
//
// A batch is sent to that address alone, within a timeout, and of the answer at most 64 KiB are read, which are never logged.
type collector struct {
	url    string
	head   http.Header
	client *http.Client
}

// collector returns the collector of spans that the options configure. It connects nowhere yet.
func (o *Options) collector() (*collector, error) {
	u, err := o.url()
	if err != nil {
		return nil, err
	}
	head, err := o.headers()
	if err != nil {
		return nil, err
	}
	return newCollector(u, head, o.Version)
}

// newCollector returns a collector at a URL.
func newCollector(u *url.URL, head http.Header, version string) (*collector, error) {
	if len(head) > 0 && u.Scheme != "https" && !loopback(u.Hostname()) {
		return nil, fmt.Errorf("headers must not be sent to %s unencrypted\nhint: use https", u.Host)
	}
	head.Set("Content-Type", "application/x-protobuf")
	head.Set("User-Agent", "corral/"+version)
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

// A retryableError is an error after which the same request may be sent again.
type retryableError struct {
	error
	after time.Duration // that the collector requested
}

// Unwrap returns the underlying error.
func (e *retryableError) Unwrap() error { return e.error }

// retryable returns whether the batch of an error of post may be sent again, and the pause that the collector asks for, which may be
// an hour.
func retryable(err error) (after time.Duration, ok bool) {
	var again *retryableError
	if !errors.As(err, &again) {
		return 0, false
	}
	return again.after, true
}

// post sends a message once. See retryable for its errors.
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
			return fmt.Errorf("the collector rejected %d of a batch", n)
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
	partial, _ := protowire.ConsumeBytes(first(answer, protowire.BytesType))
	n, _ := protowire.ConsumeVarint(first(partial, protowire.VarintType))
	return int64(n)
}

// first returns a message from the value of its field 1 on, nil if it has none of that type.
func first(message []byte, wanted protowire.Type) []byte {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil
		}
		if number == 1 && kind == wanted {
			return message[n:]
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
