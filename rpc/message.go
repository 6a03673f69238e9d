package rpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"corral/internal/calls"
	"corral/internal/strictjson"
	"corral/internal/text"
)

// Error codes of JSON-RPC, and codeBusy from the range reserved for servers.
const (
	codeParse    = -32700
	codeRequest  = -32600
	codeParams   = -32602
	codeInternal = -32603
	codeBusy     = -32001
)

const (
	maxID   = 1024 // bytes of a request id (in JSON) and of a process id
	maxWord = 100  // bytes of client text quoted in an error
	maxSaid = 500  // bytes of an error or a reason quoted in a message
)

// A fault is the error of a request that was not served.
type fault struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

func faultOf(code int, format string, values ...any) *fault {
	return &fault{Code: code, Message: text.Lines(fmt.Sprintf(format, values...))}
}

// invalid returns the fault of a malformed request.
func invalid(format string, values ...any) *fault {
	return faultOf(codeRequest, "Invalid request: "+format, values...)
}

// A message is a request, a notification or an answer from a client; id is nil unless it is a request.
type message struct {
	id     json.RawMessage // raw JSON
	method string
	params json.RawMessage // an object, or nil
	trace  calls.Trace
}

// parse decodes one message. If it returns a fault, m.id is the id to answer with, or nil if none was read.
func parse(text []byte) (m message, f *fault) {
	wrong, _ := strictjson.Checker{}.Check(text)
	switch {
	case wrong != nil && wrong.Syntax:
		return m, faultOf(codeParse, "Parse error: %v", wrong)
	case wrong != nil:
		return m, invalid("%v", wrong)
	}
	top := strictjson.Entries(text)
	if top == nil {
		return m, invalid("a message must be one JSON object")
	}
	var answer, hasID bool
	var parent, state string
	for _, e := range top {
		switch e.Key {
		case "id":
			hasID, m.id = true, idOf(e.Value)
		case "method":
			m.method = stringOf(e.Value)
		case "params":
			m.params = e.Value
		case "trace":
			parent, state = traceOf(e.Value)
		case "result", "error":
			answer = true
		}
	}
	switch {
	case hasID && m.id == nil:
		return m, invalid("`id` must be a string or a 64-bit integer of at most %d bytes", maxID)
	case m.method == "" && answer:
		m.id = nil // this server sends no requests, so it expects no answers
		return m, nil
	case m.method == "":
		return m, invalid("missing field `method`")
	}
	m.trace = calls.TraceOf(parent, state)
	return m, m.checkParams()
}

// traceOf reads the trace context of a request: {"traceparent": …, "tracestate": …}. Invalid parts are ignored.
func traceOf(raw json.RawMessage) (parent, state string) {
	for _, e := range strictjson.Entries(raw) {
		switch e.Key {
		case "traceparent":
			parent = stringOf(e.Value)
		case "tracestate":
			state = stringOf(e.Value)
		}
	}
	return parent, state
}

func (m *message) checkParams() *fault {
	switch {
	case isNull(m.params):
		m.params = nil
	case m.params[0] != '{':
		return invalid("`params` is not an object")
	}
	return nil
}

// idOf returns raw if it is a valid id, else nil.
func idOf(raw json.RawMessage) json.RawMessage {
	if len(raw) > maxID {
		return nil
	}
	if raw[0] == '"' {
		return raw
	}
	if _, err := strconv.ParseInt(string(raw), 10, 64); err != nil {
		return nil
	}
	return raw
}

// idKey returns the same key for equal ids, for example "a" and "\u0061".
func idKey(raw json.RawMessage) string {
	if raw[0] == '"' {
		return `"` + strictjson.Unquote(raw)
	}
	return string(raw)
}

// stringOf returns the value of a JSON string, or "" if raw is not a string.
func stringOf(raw json.RawMessage) string {
	if raw[0] != '"' {
		return ""
	}
	return strictjson.Unquote(raw)
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || bytes.Equal(raw, []byte("null")) }

// answerOf returns the response to a request. The protocol omits the "jsonrpc" member.
func answerOf(id, result json.RawMessage) []byte {
	return slices.Concat([]byte(`{"id":`), id, []byte(`,"result":`), result, []byte(`}`))
}

// errorOf returns an error response; a nil id becomes null.
func errorOf(id json.RawMessage, f *fault) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	return slices.Concat([]byte(`{"id":`), id, []byte(`,"error":`), strictjson.Encode(f), []byte(`}`))
}

// noteOf returns a notification.
func noteOf(method string, params any) []byte {
	return slices.Concat([]byte(`{"method":`), strictjson.Encode(method), []byte(`,"params":`), strictjson.Encode(params), []byte(`}`))
}
