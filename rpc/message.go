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

// Codes of errors, those of JSON-RPC and one of the range that it leaves to servers.
const (
	codeParse    = -32700
	codeRequest  = -32600
	codeParams   = -32602
	codeInternal = -32603
	codeBusy     = -32001
)

const (
	maxID   = 1024 // bytes of a request's id and of a process's, as written
	maxWord = 100  // bytes of what a client wrote that an error repeats
	maxSaid = 500  // bytes of somebody else's text within a message
)

// A fault is the answer to a request that is not served.
type fault struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

func faultOf(code int, format string, values ...any) *fault {
	return &fault{Code: code, Message: text.Lines(fmt.Sprintf(format, values...))}
}

// invalid is a message that is no request that is known here.
func invalid(format string, values ...any) *fault {
	return faultOf(codeRequest, "Invalid request: "+format, values...)
}

// A message is one of a client: a request, or what needs no answer (id is nil).
type message struct {
	id     json.RawMessage // as it was written
	method string
	params json.RawMessage // an object; nil is none
	trace  calls.Trace
}

// parse reads one message. With a fault, m has the id to answer under, if one was seen.
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
		return m, invalid("a message is one JSON object")
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
		return m, invalid("an id is a string or a whole number of 64 bits, of at most %d bytes", maxID)
	case m.method == "" && answer:
		m.id = nil // nobody here has asked for it
		return m, nil
	case m.method == "":
		return m, invalid("missing field `method`")
	}
	m.trace = calls.TraceOf(parent, state)
	return m, m.checkParams()
}

// traceOf reads where a request is in a trace: {"traceparent": …, "tracestate": …}. What is wrong with it is passed over.
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

// idOf returns a value that can be an id, else nil.
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

// idKey is the same for two ids that are the same: "a" and "\u0061".
func idKey(raw json.RawMessage) string {
	if raw[0] == '"' {
		return `"` + strictjson.Unquote(raw)
	}
	return string(raw)
}

// stringOf returns a string, "" for what is none.
func stringOf(raw json.RawMessage) string {
	if raw[0] != '"' {
		return ""
	}
	return strictjson.Unquote(raw)
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || bytes.Equal(raw, []byte("null")) }

// encode writes a value that cannot fail to be encoded, without the escapes that HTML needs.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return json.RawMessage("null")
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// answerOf is the answer to a request. The protocol has no "jsonrpc" member.
func answerOf(id, result json.RawMessage) []byte {
	return slices.Concat([]byte(`{"id":`), id, []byte(`,"result":`), result, []byte(`}`))
}

// errorOf is the answer to a request that is not served; id is null when it is not known.
func errorOf(id json.RawMessage, f *fault) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	return slices.Concat([]byte(`{"id":`), id, []byte(`,"error":`), encode(f), []byte(`}`))
}

// noteOf is a notification.
func noteOf(method string, params any) []byte {
	return slices.Concat([]byte(`{"method":`), encode(method), []byte(`,"params":`), encode(params), []byte(`}`))
}
