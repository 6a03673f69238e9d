package server

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"corral/internal/jsonrpc"
	"corral/mcp/tool"

	sdk "github.com/mark3labs/mcp-go/mcp"
)

// post serves a POST request, which has one message.
func (h *web) post(w http.ResponseWriter, r *http.Request, c tool.Caller) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		h.refuse(w, r, http.StatusUnsupportedMediaType, "Content-Type must be application/json")
		return
	}
	if !accepts(r, "application/json") {
		h.refuse(w, r, http.StatusNotAcceptable, "the Accept header must include application/json and text/event-stream")
		return
	}
	room := &bodyBudget{budget: h.bodies, who: c.Principal}
	defer room.releaseAll()
	body, status := h.readBody(w, r, room)
	switch status {
	case 0:
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Connection", "close")
		h.refuse(w, r, status, "the server is processing too many large messages: try again")
		return
	default:
		w.Header().Set("Connection", "close")
		h.refuse(w, r, status, "a message must have at most %d bytes and arrive within %s", h.maxBody, bodyTimeout)
		return
	}
	if body = bytes.TrimSpace(body); len(body) > 0 && body[0] == '[' {
		h.refuse(w, r, http.StatusBadRequest, "a POST must have one message: batches are not supported over HTTP")
		return
	}
	m, err := parseMessage(body)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, dialect.Error(m.id, err))
		return
	}
	m.meta.readTrace(r.Header)
	if m.modern() || isModern(r.Header.Get(sdk.HeaderProtocolVersion)) {
		h.postModern(w, r, c, m, len(body))
		return
	}
	h.postSession(w, r, c, m, len(body))
}

// readTrace reads the trace context from headers unless the message has one. The message's was written by the caller of the
// tool, the headers may come from any proxy in between (SEP-414). Two traceparent headers count as none (Trace Context, 3.2).
func (m *meta) readTrace(head http.Header) {
	if parents := head.Values("Traceparent"); m.trace == "" && len(parents) == 1 {
		m.trace, m.state = parents[0], strings.Join(head.Values("Tracestate"), ",")
	}
}

// A bodyBudget is the share of a budget that one body uses.
type bodyBudget struct {
	*budget
	who  string
	size int64
}

// grow returns body with twice its capacity, at most limit bytes. It returns nil if the budget is used up.
func (m *bodyBudget) grow(body []byte, limit int64) []byte {
	size := min(max(2*int64(cap(body)), firstRead), limit)
	if !m.reserve(m.who, size-m.size) {
		return nil
	}
	m.size = size
	return append(make([]byte, 0, size), body...)
}

func (m *bodyBudget) releaseAll() { m.release(m.who, m.size) }

// firstRead is the initial capacity for a body in bytes.
const firstRead = 16 << 10

// errNoRoom means that the budget for bodies is used up.
var errNoRoom = errors.New("no room")

// read reads at most limit bytes, to the end of from. Budget is taken as bytes arrive, because a client can
// announce any length at no cost.
func (m *bodyBudget) read(from io.Reader, limit int64) ([]byte, error) {
	body := []byte{}
	for {
		if len(body) == cap(body) {
			if body = m.grow(body, limit+1); body == nil { // one byte more, to detect the end
				return nil, errNoRoom
			}
		}
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case errors.Is(err, io.EOF):
			return body, nil
		case err == nil && int64(len(body)) > limit:
			return nil, errors.New("body is longer than its Content-Length")
		case err != nil:
			return nil, err
		}
	}
}

// readBody reads the body, bounded in length and time. status is 0, or that of the error response.
func (h *web) readBody(w http.ResponseWriter, r *http.Request, room *bodyBudget) (body []byte, status int) {
	limit := h.maxBody
	if r.ContentLength >= 0 {
		limit = min(limit, r.ContentLength)
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout)) // best effort: not every ResponseWriter supports it
	body, err := room.read(http.MaxBytesReader(w, r.Body, h.maxBody), limit)
	// net/http keeps reading the connection to detect that the client disconnects, and an expired deadline would look like
	// that.
	_ = control.SetReadDeadline(time.Time{})
	var long *http.MaxBytesError
	switch {
	case errors.Is(err, errNoRoom):
		return nil, http.StatusServiceUnavailable
	case errors.As(err, &long):
		return nil, http.StatusRequestEntityTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, http.StatusRequestTimeout
	case err != nil:
		return nil, http.StatusBadRequest
	}
	return body, 0
}

// accepts reports whether the client accepts a media type. Without an Accept header it accepts any (RFC 9110, 12.5.1).
func accepts(r *http.Request, media string) bool {
	sent := r.Header.Values("Accept")
	if len(sent) == 0 {
		return true
	}
	major, _, _ := strings.Cut(media, "/")
	for _, part := range strings.Split(strings.Join(sent, ","), ",") {
		t, _, err := mime.ParseMediaType(part)
		if err == nil && (t == media || t == "*/*" || t == major+"/*") {
			return true
		}
	}
	return false
}

// postModern serves a message of 2026-07-28 or later: without a session, and with headers that repeat parts of the message.
func (h *web) postModern(w http.ResponseWriter, r *http.Request, c tool.Caller, m *message, size int) {
	if m.id == nil || m.method == "" {
		h.postSilent(w, m)
		return
	}
	if err := checkHeaders(r.Header, m); err != nil {
		writeJSON(w, http.StatusBadRequest, dialect.Error(m.id, err))
		return
	}
	c.Session = c.Principal
	if m.meta.session != "" {
		c.Session += "/" + digest(m.meta.session)
	}
	x := &exchange{web: h, w: w, r: r, message: m, calls: &inflight{}, status: modernStatus}
	x.serve(r.Context(), c, size)
}

// postSilent responds 202 to a message that gets no JSON-RPC response.
func (h *web) postSilent(w http.ResponseWriter, m *message) {
	if m.method == "" && m.modern() {
		writeJSON(w, http.StatusBadRequest, dialect.Error(m.id, jsonrpc.Errorf(jsonrpc.CodeRequest,
			"unexpected response: this server sends no requests to clients")))
		return
	}
	writeEmpty(w, http.StatusAccepted)
}

// postSession serves a message of the protocol versions with sessions.
func (h *web) postSession(w http.ResponseWriter, r *http.Request, c tool.Caller, m *message, size int) {
	x := &exchange{web: h, w: w, r: r, message: m, status: func(int) int { return http.StatusOK }}
	if v := r.Header.Get(sdk.HeaderProtocolVersion); v != "" && !sdk.IsValidProtocolVersion(v) {
		writeJSON(w, http.StatusBadRequest, dialect.Error(m.id, unsupported(v)))
		return
	}
	if m.method == string(sdk.MethodInitialize) && m.id != nil {
		x.calls, x.opens = &inflight{}, true
		x.serve(r.Context(), c, size)
		return
	}
	s, ok := h.session(w, r, c)
	if !ok {
		return
	}
	defer h.sessions.leave(s)
	if m.id == nil || m.method == "" {
		if m.method == string(sdk.MethodNotificationCancelled) {
			s.calls.cancel(m.cancels)
		}
		h.postSilent(w, m)
		return
	}
	c.Session, c.Defaults = s.key(), &s.defaults
	x.calls = &s.calls
	x.serve(r.Context(), c, size)
}

// session returns the session of r, for which the caller must call leave. If there is none, it sends an error response.
func (h *web) session(w http.ResponseWriter, r *http.Request, c tool.Caller) (*session, bool) {
	if v := r.Header.Get(sdk.HeaderProtocolVersion); v != "" && !sdk.IsValidProtocolVersion(v) {
		writeJSON(w, http.StatusBadRequest, dialect.Error(nil, unsupported(v)))
		return nil, false
	}
	id := r.Header.Get(sdk.HeaderSessionID)
	if id == "" {
		h.refuse(w, r, http.StatusBadRequest, "missing header %s: its value is in the response to initialize", sdk.HeaderSessionID)
		return nil, false
	}
	s, ok := h.sessions.enter(id, c.Principal)
	if !ok {
		h.refuse(w, r, http.StatusNotFound, "unknown session: send initialize to open a new one")
	}
	return s, ok
}

// get opens the session's stream. This server sends notifications only on the stream of the request that they belong to, so
// nothing but comments is sent here; the open stream keeps the session from expiring, and ends with it.
func (h *web) get(w http.ResponseWriter, r *http.Request, c tool.Caller) {
	if !accepts(r, "text/event-stream") {
		h.refuse(w, r, http.StatusNotAcceptable, "the Accept header must include text/event-stream")
		return
	}
	s, ok := h.session(w, r, c)
	if !ok {
		return
	}
	defer h.sessions.leave(s)
	if !h.sessions.acquireStream(s) {
		h.refuse(w, r, http.StatusConflict, "the session already has an open stream")
		return
	}
	defer h.sessions.releaseStream(s)
	out := &events{w: w}
	tick := time.NewTicker(keepAliveInterval)
	defer tick.Stop()
	recheck := time.NewTicker(recheckInterval)
	defer recheck.Stop()
	for err := out.open(); err == nil; {
		select {
		case <-tick.C:
			err = out.comment()
		case <-recheck.C:
			if !h.stillAs(r, c) {
				return
			}
		case <-r.Context().Done():
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// delete ends a session.
func (h *web) delete(w http.ResponseWriter, r *http.Request, c tool.Caller) {
	s, ok := h.session(w, r, c)
	if !ok {
		return
	}
	h.sessions.remove(s)
	h.sessions.leave(s)
	writeEmpty(w, http.StatusNoContent)
}
