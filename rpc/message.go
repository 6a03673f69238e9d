package rpc

import (
	"bytes"
	"encoding/json"

	"corral/internal/calls"
	"corral/internal/jsonrpc"
	"corral/internal/strictjson"
)

// codeBusy is from the range reserved for servers.
const codeBusy = -32001

const (
	maxID   = 1024 // bytes of a request id (in JSON) and of a process id
	maxWord = 100  // bytes of client text quoted in an error
	maxSaid = 500  // bytes of an error or a reason quoted in a message
)

// dialect is the form of this protocol's messages, which omit the "jsonrpc" member.
var dialect = jsonrpc.Dialect{MaxID: maxID, Integers: true}

// invalid returns the fault of a malformed request.
func invalid(format string, values ...any) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeRequest, "Invalid request: "+format, values...)
}

// A message is a request, a notification or an answer from a client; id is nil unless it is a request.
type message struct {
	id     json.RawMessage // raw JSON
	method string
	params json.RawMessage // an object, or nil
	trace  calls.Trace
}

// parse decodes one message. If it returns a fault, m.id is the id to answer with, or nil if none was read.
func parse(text []byte) (m message, f *jsonrpc.Error) {
	wrong, _ := strictjson.Checker{}.Check(text)
	switch {
	case wrong != nil && wrong.Syntax:
		return m, jsonrpc.Errorf(jsonrpc.CodeParse, "Parse error: %v", wrong)
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
			hasID, m.id = true, dialect.ID(e.Value)
		case "method":
			m.method = jsonrpc.String(e.Value)
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
			parent = jsonrpc.String(e.Value)
		case "tracestate":
			state = jsonrpc.String(e.Value)
		}
	}
	return parent, state
}

func (m *message) checkParams() *jsonrpc.Error {
	switch {
	case isNull(m.params):
		m.params = nil
	case m.params[0] != '{':
		return invalid("`params` must be an object, got %s", kind(m.params))
	}
	return nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || bytes.Equal(raw, []byte("null")) }
