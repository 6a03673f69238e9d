package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	sdk "github.com/mark3labs/mcp-go/mcp"
)

// An exchange is one request over HTTP and its answer.
type exchange struct {
	*web
	*message
	w      http.ResponseWriter
	r      *http.Request
	calls  *inflight          // of the session, or of this request only
	opens  bool               // it is initialize: the answer names a new session
	status func(code int) int // of an answer that is a JSON-RPC error
	out    events
}

// serve answers the request: as JSON, or as a stream if there is progress to be told before, or a long time to wait. When
// the client leaves, the call is cancelled: nobody else can have its answer.
func (x *exchange) serve(ctx context.Context, c Caller, size int) {
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
			default: // the client is behind: it misses this one
			}
		})
	}()
	r := x.wait(cancel, notes, answer)
	x.calls.finish(x.id)
	if cause := context.Cause(ctx); errors.Is(cause, errCancelled) || errors.Is(cause, errSessionEnded) {
		x.silence()
		return
	}
	x.send(r, c)
}

// wait sends what comes before the answer, and returns that.
func (x *exchange) wait(cancel context.CancelCauseFunc, notes <-chan []byte, answer <-chan reply) reply {
	// Who takes anything, as curl does, gets JSON.
	streams := strings.Contains(strings.Join(x.r.Header.Values("Accept"), ","), "text/event-stream")
	tick := time.NewTicker(quietTime)
	defer tick.Stop()
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
		case r := <-answer:
			for len(notes) > 0 {
				note := <-notes
				event(func() error { return x.out.event(note) })
			}
			return r
		}
	}
}

// silence ends an answer that the client does not want any more.
func (x *exchange) silence() {
	if !x.out.opened {
		writeEmpty(x.w, http.StatusAccepted)
	}
}

func (x *exchange) send(r reply, c Caller) {
	if x.out.opened {
		_ = x.out.event(r.data) // a client that does not read its answer has none
		return
	}
	if x.opens && r.code == 0 {
		s, ok := x.sessions.open(c.Principal, r.version)
		if !ok {
			x.refuse(x.w, x.r, http.StatusServiceUnavailable, "%d sessions are open and busy: end one", x.sessions.max)
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

// events is an answer that is a stream of server-sent events.
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
	head.Set("X-Accel-Buffering", "no") // nginx would keep events back
	e.w.WriteHeader(http.StatusOK)
	return e.write(nil)
}

// event sends a message. It is one line: JSON has its newlines escaped.
func (e *events) event(data json.RawMessage) error {
	if err := e.open(); err != nil {
		return err
	}
	return e.write(bytes.Join([][]byte{[]byte("event: message\ndata: "), data, []byte("\n\n")}, nil))
}

// comment sends what clients pass over.
func (e *events) comment() error {
	if err := e.open(); err != nil {
		return err
	}
	return e.write([]byte(": still here\n\n"))
}

func (e *events) write(data []byte) error {
	boundWrite(e.w)
	if _, err := e.w.Write(data); err != nil {
		return err
	}
	return http.NewResponseController(e.w).Flush()
}
