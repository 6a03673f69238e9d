package relay

import (
	"errors"
	"io"
	"net/http"
	"strings"
)

// upgrades decides about a request for another protocol: without an answer of it, the request is passed on without that wish. A
// WebSocket (RFC 6455) carries data both ways that nobody reads. So rules must allow a POST at its path, too, and its host can have no
// secret, which it could send back. open reports whether the rules in force still allow it; nil: it is not one.
func (i *Inspection) upgrades(in *http.Request, g guard) (open func() bool, d *Denied) {
	if !isWebSocket(in) {
		in.Header.Del("Upgrade")
		return nil, nil
	}
	paths, d := readings(in.URL)
	if d != nil {
		return nil, d
	}
	for _, p := range paths {
		if _, why := i.Allow(http.MethodPost, p); why != "" {
			return nil, denied("a WebSocket, which sends data: %s", why)
		}
	}
	if len(g) > 0 {
		return nil, denied("a WebSocket at a host with a secret, for which nobody looks in what the host sends")
	}
	return func() bool {
		for _, p := range paths {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				if _, why := i.Allow(method, p); why != "" {
					return false
				}
			}
		}
		return true
	}, nil
}

// isWebSocket reports whether a request asks for a WebSocket and nothing else. One with a body could have another request in it.
func isWebSocket(in *http.Request) bool {
	protocols := in.Header["Upgrade"]
	return in.ProtoMajor == 1 && in.Method == http.MethodGet && in.ContentLength == 0 &&
		len(protocols) == 1 && strings.EqualFold(protocols[0], "websocket")
}

// A webSocket is the connection to the host of a WebSocket that the rules allow: it ends with the first bytes after they do not.
type webSocket struct {
	io.ReadWriteCloser
	open func() bool
}

var errRulesChanged = errors.New("the rules do not allow the WebSocket any more")

// Read implements io.Reader.
func (w *webSocket) Read(p []byte) (int, error) {
	n, err := w.ReadWriteCloser.Read(p)
	if !w.open() {
		return 0, errRulesChanged
	}
	return n, err
}

// Write implements io.Writer.
func (w *webSocket) Write(p []byte) (int, error) {
	if !w.open() {
		return 0, errRulesChanged
	}
	return w.ReadWriteCloser.Write(p)
}

// keepOpen makes the response that begins a WebSocket one that ends when open says so.
func keepOpen(reply *http.Response, open func() bool) error {
	conn, ok := reply.Body.(io.ReadWriteCloser)
	if !ok {
		return errSwitched
	}
	reply.Body = &webSocket{conn, open}
	return nil
}
