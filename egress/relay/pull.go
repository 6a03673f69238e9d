package relay

import (
	"context"
	"errors"
	"net"
	"net/http"

	"corral/internal/text"
)

// A Puller answers a request in place of the host. host makes requests of the host, of any path. The error is ErrPass for a request that
// is passed on, or a *Denied, both without an answer. After another error, the answer is cut off if it had begun.
type Puller func(w http.ResponseWriter, in *http.Request, host http.RoundTripper) error

// ErrPass is returned by a Puller for a request that is passed on to the host as it is.
var ErrPass = errors.New("the request is passed on")

// NewPulling returns a Relay for HTTP without TLS, whose requests a Puller may answer. Of inspection, only Allow and Pull are used. Allow
// is called with the decoded path.
func NewPulling(name string, port uint16, dial func(context.Context) (net.Conn, error), inspection Inspection) *Relay {
	r := New(name, port, HTTP, dial)
	r.inspect = &inspection
	return r
}

// pull has an allowed request answered in place of the host, and returns whether it was.
func (r *Relay) pull(w http.ResponseWriter, in *http.Request, scheme string, with sent, failed func(error) error) bool {
	if r.inspect.Pull == nil {
		return false
	}
	paths := []string{in.URL.Path}
	if list, d := readings(in.URL); d == nil {
		paths = list
	}
	puller := r.inspect.Pull(in.Method, paths, with.secret)
	if puller == nil {
		return false
	}
	answer := &answering{ResponseWriter: w}
	err := puller(answer, in, &host{r, scheme, with.guard})
	d := (*Denied)(nil)
	switch {
	case errors.Is(err, ErrPass):
		return false
	case err == nil:
		return true
	}
	err = failed(err)
	switch {
	case answer.began:
		panic(http.ErrAbortHandler)
	case errors.As(err, &d):
		d.answer(w, http.StatusForbidden)
	default:
		http.Error(w, "corral: "+text.Line(err.Error(), 1000), http.StatusBadGateway)
	}
	return true
}

// An answering writer knows whether a response has begun.
type answering struct {
	http.ResponseWriter
	began bool
}

// WriteHeader implements http.ResponseWriter.
func (a *answering) WriteHeader(status int) {
	a.began = true
	a.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (a *answering) Write(b []byte) (int, error) {
	a.began = true
	return a.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (a *answering) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// A host makes requests for a Puller.
type host struct {
	relay  *Relay
	scheme string
	guard  guard // of the responses
}

// RoundTrip implements http.RoundTripper. Whatever the request says, it is for the host.
func (h *host) RoundTrip(in *http.Request) (*http.Response, error) {
	out := in.Clone(in.Context())
	out.URL.Scheme, out.URL.Host = h.scheme, h.relay.address()
	h.guard.ask(out)
	reply, err := h.relay.transport.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	err = h.guard.reply(reply, func(*Denied) {}) // pull tells of it
	if reply.StatusCode == http.StatusSwitchingProtocols {
		err = errSwitched
	}
	if err != nil {
		reply.Body.Close()
		return nil, err
	}
	return reply, nil
}
