package packages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"corral/egress/store"
)

// userAgent is what registries see of requests whose answers are kept, or say what other files must be.
const userAgent = "corral-egress"

// get makes a request of the registry for an escaped path. old, if set, is what is kept: the answer may be that it did not change.
func (p *pull) get(ctx context.Context, path, accept, encoding string, old *store.Entry) (*http.Response, error) {
	u, err := p.url(path)
	if err != nil {
		return nil, err
	}
	header := p.own.Clone()
	for name := range header {
		if isHop(name) {
			delete(header, name)
		}
	}
	if p.Secret != "" {
		name := http.CanonicalHeaderKey(p.Header)
		header[name] = p.in.Header[name]
	}
	header.Set("Accept", accept)
	header.Set("Accept-Encoding", encoding)
	header.Set("User-Agent", userAgent)
	if old != nil {
		if old.Tag != "" {
			header.Set("If-None-Match", old.Tag)
		} else if old.Date != "" {
			header.Set("If-Modified-Since", old.Date)
		}
	}
	request := &http.Request{Method: http.MethodGet, URL: u, Host: p.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	reply, err := p.host.RoundTrip(request.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("the registry %s: %w", p.Host, err)
	}
	return reply, nil
}

// isHop reports whether a header is about a connection.
func isHop(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// unreachable reports whether what is kept is better than an answer.
func unreachable(reply *http.Response, err error) bool {
	return err != nil && !errors.Is(err, context.Canceled) || err == nil && reply.StatusCode >= http.StatusInternalServerError
}

// A statusError is an answer of the registry that is no document: it is passed on.
type statusError struct{ reply *http.Response }

// Error implements error.
func (e *statusError) Error() string { return "the registry answers " + e.reply.Status }

// maxAnswer bounds an answer that is no document or file, in bytes: a page that says why.
const maxAnswer = 4 << 20

// answer passes an answer on that is not kept.
func answer(w http.ResponseWriter, reply *http.Response) error {
	defer reply.Body.Close()
	for _, name := range []string{"Content-Type", "Content-Encoding", "Location", "Retry-After", "Www-Authenticate"} {
		if values := reply.Header[name]; values != nil {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(reply.StatusCode)
	_, err := io.Copy(w, io.LimitReader(reply.Body, maxAnswer))
	return err
}

// describe writes headers about a content.
func describe(w http.ResponseWriter, kind string, size int64) {
	if kind == "" {
		kind = "application/octet-stream"
	}
	w.Header().Set("Content-Type", kind)
	if size >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	}
}
