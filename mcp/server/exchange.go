package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"corral/internal/jsonrpc"
	"corral/mcp/tool"

	sdk "github.com/mark3labs/mcp-go/mcp"
)

// An exchange is one request over HTTP and its response.
type exchange struct {
	*web
	*message
	w      http.ResponseWriter
	r      *http.Request
	calls  *inflight          // of the session, or of this request only
	opens  bool               // the request is initialize: the response names a new session
	status func(code int) int // HTTP status of a JSON-RPC error
	out    events
}

// serve responds to the request with JSON, or with a stream if progress precedes the response or it takes long. If the client
// disconnects the call is cancelled, because its response could not be delivered on another connection.
func (x *exchange) serve(ctx context.Context, c tool.Caller, size int) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := x.calls.add(x.id, size, cancel); err != nil {
		writeJSON(x.w, x.status(err.Code), x.busy(ctx, x.message, c, err))
		return
	}
	defer x.calls.release(size)
	x.out.w = x.w
	notes := make(chan []byte, 16)
	answer := make(chan reply, 1)
	go func() {
		answer <- x.answer(ctx, x.message, c, func(note []byte) {
			select {
			case notes <- note:
			default: // the client reads too slowly: drop this notification
			}
		})
	}()
	r := x.wait(c, cancel, notes, answer)
	x.calls.finish(x.id)
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errRevoked):
		x.revoked()
		return
	case errors.Is(cause, errCancelled) || errors.Is(cause, errSessionEnded):
		x.silence()
		return
	}
	x.send(r, c)
}

// wait sends notifications and comments until the response is there, and returns the response. It cancels the call when the
// client's token is not accepted any more.
func (x *exchange) wait(c tool.Caller, cancel context.CancelCauseFunc, notes <-chan []byte, answer <-chan reply) reply {
	// A client that accepts */*, such as curl, gets JSON.
	streams := strings.Contains(strings.Join(x.r.Header.Values("Accept"), ","), "text/event-stream")
	tick := time.NewTicker(keepAliveInterval)
	defer tick.Stop()
	recheck := time.NewTicker(recheckInterval)
	defer recheck.Stop()
	event := func(send func() error) {
		if !streams {
			return
		}
		if err := send(); err != nil {
			cancel(err)
		}
	}
	for {
		select {
		case note := <-notes:
			event(func() error { return x.out.event(note) })
		case <-tick.C:
			event(x.out.comment)
		case <-recheck.C:
			if !x.stillAs(x.r, c) {
				cancel(errRevoked)
			}
		case r := <-answer:
			for len(notes) > 0 {
				note := <-notes
				event(func() error { return x.out.event(note) })
			}
			return r
		}
	}
}

// revoked ends the HTTP response to a request whose token is not accepted any more. A stream just ends.
func (x *exchange) revoked() {
	if !x.out.opened {
		x.unauthorized(x.w, x.r)
	}
}

// silence ends the HTTP response to a request that was cancelled.
func (x *exchange) silence() {
	if !x.out.opened {
		writeEmpty(x.w, http.StatusAccepted)
	}
}

// send writes the response. A client that does not read keeps a response in memory until writeTimeout; if its principal has
// too many such responses, a short error takes the place of another one.
func (x *exchange) send(r reply, c tool.Caller) {
	if size := int64(len(r.data)); size > freeResponse {
		if x.answers.reserve(c.Principal, size) {
			defer x.answers.release(c.Principal, size)
		} else {
			err := jsonrpc.Errorf(codeBusy, "the response of %d bytes was dropped: earlier responses have not been read", size)
			r.data, r.code = dialect.Error(x.id, err), err.Code
		}
	}
	if x.out.opened {
		_ = x.out.event(r.data) // a client that does not read loses its response
		return
	}
	if x.opens && r.code == 0 {
		s, ok := x.sessions.open(c.Principal, r.version)
		if !ok {
			x.refuse(x.w, x.r, http.StatusServiceUnavailable, "all %d sessions are busy: end one", x.sessions.max)
			return
		}
		x.w.Header().Set(sdk.HeaderSessionID, s.id)
	}
	status := http.StatusOK
	if r.code != 0 {
		status = x.status(r.code)
	}
	writeJSON(x.w, status, r.data)
}

// events is a response that is a stream of server-sent events.
type events struct {
	w      http.ResponseWriter
	opened bool
}

func (e *events) open() error {
	if e.opened {
		return nil
	}
	e.opened = true
	head := e.w.Header()
	head.Set("Content-Type", "text/event-stream")
	head.Set("Cache-Control", "no-store")
	head.Set("X-Accel-Buffering", "no") // otherwise nginx buffers events
	e.w.WriteHeader(http.StatusOK)
	return e.write()
}

// event sends a message. data is one line, because JSON escapes newlines.
func (e *events) event(data json.RawMessage) error {
	if err := e.open(); err != nil {
		return err
	}
	return e.write([]byte("event: message\ndata: "), data, []byte("\n\n"))
}

// comment sends a line that clients ignore, to keep the connection open.
func (e *events) comment() error {
	if err := e.open(); err != nil {
		return err
	}
	return e.write([]byte(": still here\n\n"))
}

func (e *events) write(parts ...[]byte) error {
	boundWrite(e.w)
	for _, part := range parts {
		if _, err := e.w.Write(part); err != nil {
			return err
		}
	}
	return http.NewResponseController(e.w).Flush()
}
