package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	sdk "github.com/mark3labs/mcp-go/mcp"
)

// post takes one message.
func (h *web) post(w http.ResponseWriter, r *http.Request, c Caller) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		h.refuse(w, r, http.StatusUnsupportedMediaType, "the Content-Type is application/json")
		return
	}
	if !accepts(r, "application/json") {
		h.refuse(w, r, http.StatusNotAcceptable, "the client has to accept application/json and text/event-stream")
		return
	}
	room := &bodyBudget{budget: h.bodies, who: c.Principal}
	defer room.leave()
	body, status := h.readBody(w, r, room)
	switch status {
	case 0:
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Connection", "close")
		h.refuse(w, r, status, "too much is under way: try again")
		return
	default:
		w.Header().Set("Connection", "close")
		h.refuse(w, r, status, "a message has at most %d bytes, and %s to arrive", h.maxBody, bodyTime)
		return
	}
	if body = bytes.TrimSpace(body); len(body) > 0 && body[0] == '[' {
		h.refuse(w, r, http.StatusBadRequest, "a POST has one message: batches are not served over HTTP")
		return
	}
	m, err := parseMessage(body)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, errorOf(m.id, err))
		return
	}
	m.meta.readTrace(r.Header)
	if m.modern() || isModern(r.Header.Get(sdk.HeaderProtocolVersion)) {
		h.postModern(w, r, c, m, len(body))
		return
	}
	h.postSession(w, r, c, m, len(body))
}

// readTrace reads where the request is in a trace, if its message does not say: that was written by who calls the tool,
// headers may be of anybody between (SEP-414). Two of them are none (Trace Context, 3.2).
func (m *meta) readTrace(head http.Header) {
	if parents := head.Values("Traceparent"); m.trace == "" && len(parents) == 1 {
		m.trace, m.state = parents[0], strings.Join(head.Values("Tracestate"), ",")
	}
}

// A bodyBudget is what of a budget one body has.
type bodyBudget struct {
	*budget
	who  string
	size int64
}

// grow returns body with room for more: for twice as much, but no more than most bytes. It is nil when there is none.
func (m *bodyBudget) grow(body []byte, most int64) []byte {
	size := min(max(2*int64(cap(body)), firstRead), most)
	if !m.take(m.who, size-m.size) {
		return nil
	}
	m.size = size
	return append(make([]byte, 0, size), body...)
}

func (m *bodyBudget) leave() { m.give(m.who, m.size) }

// firstRead is how many bytes a body has room for before any has come.
const firstRead = 16 << 10

// errNoRoom is a body that there is no room for.
var errNoRoom = errors.New("no room")

// read reads to the end, at most most bytes. Room is taken as they come: to say that there will be many costs nothing.
func (m *bodyBudget) read(from io.Reader, most int64) ([]byte, error) {
	body := []byte{}
	for {
		if len(body) == cap(body) {
			if body = m.grow(body, most+1); body == nil { // one more to see the end with
				return nil, errNoRoom
			}
		}
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case errors.Is(err, io.EOF):
			return body, nil
		case err == nil && int64(len(body)) > most:
			return nil, errors.New("longer than it was said to be")
		case err != nil:
			return nil, err
		}
	}
}

// readBody reads a body, within its bounds of bytes and time.
func (h *web) readBody(w http.ResponseWriter, r *http.Request, room *bodyBudget) (body []byte, status int) {
	most := h.maxBody
	if r.ContentLength >= 0 {
		most = min(most, r.ContentLength)
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTime)) // best effort: not every writer has one
	body, err := room.read(http.MaxBytesReader(w, r.Body, h.maxBody), most)
	// net/http goes on reading to see the client leave, and takes a deadline for that.
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

// accepts reports whether the client takes answers of a media type. Without the header it takes any (RFC 9110, 12.5.1).
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

// postModern serves a message of 2026-07-28 or later, which stands for itself: headers that agree with it, no session.
func (h *web) postModern(w http.ResponseWriter, r *http.Request, c Caller, m *message, size int) {
	if m.id == nil || m.method == "" {
		h.postSilent(w, m)
		return
	}
	if err := checkHeaders(r.Header, m); err != nil {
		writeJSON(w, http.StatusBadRequest, errorOf(m.id, err))
		return
	}
	c.Session = c.Principal
	if m.meta.session != "" {
		c.Session += "/" + digest(m.meta.session)
	}
	x := &exchange{web: h, w: w, r: r, message: m, calls: &inflight{}, status: modernStatus}
	x.serve(r.Context(), c, size)
}

// postSilent answers what gets no answer: 202.
func (h *web) postSilent(w http.ResponseWriter, m *message) {
	if m.method == "" && m.modern() {
		writeJSON(w, http.StatusBadRequest, errorOf(m.id, refused(codeRequest, "there are no requests to clients to answer")))
		return
	}
	writeEmpty(w, http.StatusAccepted)
}

// checkHeaders sees to it that what is between client and server read the same in the headers as is in the body.
func checkHeaders(head http.Header, m *message) *rpcError {
	switch version := head.Get(sdk.HeaderProtocolVersion); {
	case version == "":
		return refused(codeHeader, "the header %s is missing", sdk.HeaderProtocolVersion)
	case m.meta.version == "":
		return refused(codeParams, "_meta has no %s", sdk.MetaKeyProtocolVersion)
	case version != m.meta.version:
		return refused(codeHeader, "the header %s says %q, _meta %q", sdk.HeaderProtocolVersion, shown(version), shown(m.meta.version))
	case !sdk.IsValidProtocolVersion(version):
		return unsupported(version)
	}
	named := map[string]json.RawMessage{}
	for _, e := range m.params {
		if e.Key == "name" || e.Key == "uri" {
			named[e.Key] = e.Value
		}
	}
	params := jsonOf(named)
	if err := sdk.ValidateStandardHeaders(head.Get, m.meta.version, sdk.MCPMethod(m.method), params); err != nil {
		return refused(codeHeader, "%v", err)
	}
	return nil
}

func unsupported(version string) *rpcError {
	e := sdk.UnsupportedProtocolVersionError{Version: shown(version), Supported: sdk.ValidProtocolVersions}.JSONRPCError().Error
	return &rpcError{Code: e.Code, Message: e.Message, Data: e.Data}
}

// modernStatus is the HTTP status that goes with a JSON-RPC error since 2026-07-28.
func modernStatus(code int) int {
	switch code {
	case sdk.METHOD_NOT_FOUND:
		return http.StatusNotFound
	case codeParse, codeRequest, codeParams, codeHeader, codeVersion, sdk.MISSING_REQUIRED_CLIENT_CAPABILITY:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// postSession serves a message of the versions that have sessions.
func (h *web) postSession(w http.ResponseWriter, r *http.Request, c Caller, m *message, size int) {
	x := &exchange{web: h, w: w, r: r, message: m, status: func(int) int { return http.StatusOK }}
	if v := r.Header.Get(sdk.HeaderProtocolVersion); v != "" && !sdk.IsValidProtocolVersion(v) {
		writeJSON(w, http.StatusBadRequest, errorOf(m.id, unsupported(v)))
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
	c.Session = s.key()
	x.calls = &s.calls
	x.serve(r.Context(), c, size)
}

// session returns the session that r is of, for the caller to leave; without one it has answered.
func (h *web) session(w http.ResponseWriter, r *http.Request, c Caller) (*session, bool) {
	if v := r.Header.Get(sdk.HeaderProtocolVersion); v != "" && !sdk.IsValidProtocolVersion(v) {
		writeJSON(w, http.StatusBadRequest, errorOf(nil, unsupported(v)))
		return nil, false
	}
	id := r.Header.Get(sdk.HeaderSessionID)
	if id == "" {
		h.refuse(w, r, http.StatusBadRequest, "the header %s is missing: the answer to initialize has it", sdk.HeaderSessionID)
		return nil, false
	}
	s, ok := h.sessions.enter(id, c.Principal)
	if !ok {
		h.refuse(w, r, http.StatusNotFound, "there is no such session: initialize a new one")
	}
	return s, ok
}

// get opens a session's stream. All that this server has to say belongs to a request and goes to that request's own
// answer; so the stream is silent, but it keeps the session and ends with it.
func (h *web) get(w http.ResponseWriter, r *http.Request, c Caller) {
	if !accepts(r, "text/event-stream") {
		h.refuse(w, r, http.StatusNotAcceptable, "a stream is text/event-stream")
		return
	}
	s, ok := h.session(w, r, c)
	if !ok {
		return
	}
	defer h.sessions.leave(s)
	if !h.sessions.listen(s) {
		h.refuse(w, r, http.StatusConflict, "the session has its stream already")
		return
	}
	defer h.sessions.hear(s)
	out := &events{w: w}
	tick := time.NewTicker(quietTime)
	defer tick.Stop()
	for err := out.open(); err == nil; err = out.comment() {
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// delete ends a session.
func (h *web) delete(w http.ResponseWriter, r *http.Request, c Caller) {
	s, ok := h.session(w, r, c)
	if !ok {
		return
	}
	h.sessions.remove(s)
	h.sessions.leave(s)
	writeEmpty(w, http.StatusNoContent)
}
