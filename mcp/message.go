package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/mark3labs/mcp-go/mcp"

	"corral/internal/strictjson"

	safe "corral/internal/text"
)

// Codes of JSON-RPC errors that are our own to give; what mcp-go finds has codes from its table.
const (
	codeParse   = sdk.PARSE_ERROR
	codeRequest = sdk.INVALID_REQUEST
	codeParams  = sdk.INVALID_PARAMS
	codeHeader  = sdk.HEADER_MISMATCH
	codeVersion = sdk.UNSUPPORTED_PROTOCOL_VERSION
	codeInside  = sdk.INTERNAL_ERROR
	codeBusy    = -32000 // of the range that JSON-RPC leaves to servers
)

const (
	maxID    = 256 // bytes of a request's id, as written
	maxLabel = 256 // bytes of _meta["corral/session"]
)

// Keys that are read below. One in another case is an error: mcp-go, which reads the message after us, would take it.
var (
	envelopeKeys = []string{"jsonrpc", "id", "method", "params", "result", "error"}
	paramKeys    = []string{
		"_meta", "name", "arguments", "task", "cursor", "level", "uri", "ref", "notifications", "requestId", "reason",
		"protocolVersion", "capabilities", "clientInfo", "inputResponses", "requestState",
	}
)

// A message is one JSON-RPC message of a client: a request, a notification (no id), or an answer (no method), which
// nobody here waits for.
type message struct {
	id     json.RawMessage // as it was written; nil is a notification
	method string
	params []strictjson.Entry
	meta   meta

	// Of tools/call, of notifications/cancelled.
	tool      string
	arguments json.RawMessage   // of tools/call only; an object, if there is no fault
	fault     *strictjson.Fault // what is wrong with the arguments
	cancels   json.RawMessage   // id of the request
}

// meta is what of params._meta is ours to read.
type meta struct {
	progress json.RawMessage // the token; nil: no progress is wanted
	version  string          // "io.modelcontextprotocol/protocolVersion"
	session  string          // "corral/session"
	trace    string          // "traceparent", as it came
	state    string          // "tracestate", likewise
}

// A rpcError is a fault of the protocol, and never a tool's.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

// Error returns the message.
func (e *rpcError) Error() string { return e.Message }

func refused(code int, format string, values ...any) *rpcError {
	return &rpcError{Code: code, Message: fmt.Sprintf(format, values...)}
}

// modern reports whether the request has no session behind it, as of 2026-07-28.
func (m *message) modern() bool { return sdk.IsModernProtocol(m.meta.version) }

// isCall reports whether a tool is called.
func (m *message) isCall() bool { return m.method == string(sdk.MethodToolsCall) }

// plain reports whether there is nothing in the message that mcp-go has to say something about, but for what the tool is
// and who may call it: of its own it reads the id and _meta.
func (m *message) plain() bool {
	if m.meta.version != "" || !brief(m.id) {
		return false
	}
	n := slices.IndexFunc(m.params, func(e strictjson.Entry) bool { return e.Key == "_meta" })
	if n < 0 {
		return true
	}
	list := strictjson.Entries(m.params[n].Value)
	return list != nil && !slices.ContainsFunc(list, func(e strictjson.Entry) bool {
		return !brief(e.Value) || strings.HasPrefix(e.Key, sdkKeys)
	})
}

// sdkKeys is what keys of _meta begin with that are mcp-go's to read.
const sdkKeys = "io.modelcontextprotocol/"

// brief reports whether a value is a string, or a whole number that every reader reads as the same.
func brief(raw json.RawMessage) bool {
	if len(raw) > 0 && raw[0] == '"' {
		return true
	}
	return len(raw) > 0 && len(raw) <= 15 && len(bytes.Trim(raw, "0123456789")) == 0
}

// parseMessage reads one message. With an error the message has the id to answer under, if one was seen.
func parseMessage(data []byte) (*message, *rpcError) {
	m := &message{}
	f, within := checkJSON(data)
	switch { // of what has a fault nothing but the id is read: it may be far larger in memory than it was written
	case f != nil && f.Syntax:
		m.id = findID(data)
		return m, refused(codeParse, "%v", f)
	case bytes.TrimLeft(data, " \t\r\n")[0] != '{':
		return m, refused(codeRequest, "a message is one JSON object")
	case f != nil && len(f.Path) == 0: // a key of the envelope: not even the id can be trusted
		return m, refused(codeRequest, "%v", f)
	case f != nil:
		m.id = findID(data)
		return m, refused(codeRequest, "%v", f)
	}
	top := strictjson.Entries(data)
	m.id = idOf(top)
	if err := m.readEnvelope(top); err != nil {
		return m, err
	}
	m.fault = within
	if within != nil && !m.isCall() {
		return m, refused(codeRequest, "params.arguments.%v", within)
	}
	return m, m.readParams()
}

func (m *message) readEnvelope(top []strictjson.Entry) *rpcError {
	var version, method string
	var answer bool
	for _, e := range top {
		if word := misspelled(e.Key, envelopeKeys); word != "" {
			return refused(codeRequest, "the key %q is spelled %q", shown(e.Key), word)
		}
		switch e.Key {
		case "jsonrpc":
			version = stringOf(e.Value)
		case "id":
			if m.id == nil {
				return refused(codeRequest, "an id is a string or a number of at most %d bytes", maxID)
			}
		case "method":
			method = stringOf(e.Value)
			if method == "" {
				return refused(codeRequest, "a method is a string")
			}
		case "params":
			m.params = strictjson.Entries(e.Value)
			if m.params == nil {
				return refused(codeParams, "params are an object")
			}
		case "result", "error":
			answer = true
		}
	}
	m.method = method
	switch {
	case version != sdk.JSONRPC_VERSION:
		return refused(codeRequest, `jsonrpc is to be "2.0"`)
	case method == "" && !answer:
		return refused(codeRequest, "it has no method")
	case method != "" && answer:
		return refused(codeRequest, "it is a request and an answer")
	}
	return nil
}

func (m *message) readParams() *rpcError {
	if m.isCall() {
		m.arguments = json.RawMessage("{}")
	}
	for _, e := range m.params {
		if word := misspelled(e.Key, paramKeys); word != "" {
			return refused(codeParams, "params: the key %q is spelled %q", shown(e.Key), word)
		}
		switch {
		case e.Key == "_meta":
			if err := m.meta.read(e.Value); err != nil {
				return err
			}
		case e.Key == "name" && m.isCall():
			m.tool = stringOf(e.Value)
		case e.Key == "arguments" && m.isCall():
			m.arguments = e.Value
		case e.Key == "requestId":
			m.cancels = e.Value
		}
	}
	if m.isCall() && m.tool == "" {
		return refused(codeParams, "params.name is to be the name of a tool")
	}
	if m.isCall() && m.arguments[0] != '{' { // whoever wrote them reads results, and perhaps no errors
		m.fault = &strictjson.Fault{What: "one JSON object is wanted"}
	}
	return nil
}

func (m *meta) read(raw json.RawMessage) *rpcError {
	for _, e := range strictjson.Entries(raw) {
		switch e.Key {
		case "progressToken":
			if m.progress = scalar(e.Value); m.progress == nil {
				return refused(codeParams, "a progressToken is a string or a number of at most %d bytes", maxID)
			}
		case sdk.MetaKeyProtocolVersion:
			m.version = stringOf(e.Value)
		case "corral/session":
			m.session = stringOf(e.Value)
			if m.session == "" || len(m.session) > maxLabel {
				return refused(codeParams, "_meta corral/session is a string of 1 to %d bytes", maxLabel)
			}
		case "traceparent":
			m.trace = stringOf(e.Value)
		case "tracestate":
			m.state = stringOf(e.Value)
		}
	}
	return nil
}

func idOf(top []strictjson.Entry) json.RawMessage {
	n := slices.IndexFunc(top, func(e strictjson.Entry) bool { return e.Key == "id" })
	if n < 0 {
		return nil
	}
	return scalar(top[n].Value)
}

// scalar returns a value that can name a request: a string or a number, not too long; else nil.
func scalar(raw json.RawMessage) json.RawMessage {
	isName := len(raw) > 0 && (raw[0] == '"' || raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9')
	if !isName || len(raw) > maxID {
		return nil
	}
	return raw
}

// stringOf returns a string, "" for what is none.
func stringOf(raw json.RawMessage) string {
	if len(raw) == 0 || raw[0] != '"' {
		return ""
	}
	return strictjson.Unquote(raw)
}

// idKey is the same for two ids that are the same: "a" and "\u0061".
func idKey(raw json.RawMessage) string {
	if len(raw) > 0 && raw[0] == '"' {
		return `"` + strictjson.Unquote(raw)
	}
	return string(raw)
}

// envelope writes the message anew for mcp-go, so that what it reads is what was read here. The arguments stay behind:
// they reach the tool as they were written, and are decoded once.
func (m *message) envelope(tool string) json.RawMessage {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"jsonrpc":"2.0","id":%s,"method":%s,"params":{`, m.id, jsonOf(m.method))
	separator := ""
	for _, e := range m.params {
		value := e.Value
		switch {
		case !m.isCall():
		case e.Key == "name":
			value = jsonOf(tool)
		case e.Key != "_meta":
			continue
		}
		fmt.Fprintf(&b, "%s%s:%s", separator, jsonOf(e.Key), value)
		separator = ","
	}
	b.WriteString("}}")
	return b.Bytes()
}

// jsonOf encodes a value that cannot fail to be encoded, without the escapes that HTML needs.
func jsonOf(v any) json.RawMessage {
	raw, err := marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return raw
}

func marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// answerOf is the answer to a request.
func answerOf(id, result json.RawMessage) []byte {
	return bytes.Join([][]byte{[]byte(`{"jsonrpc":"2.0","id":`), id, []byte(`,"result":`), result, []byte(`}`)}, nil)
}

// errorOf is the answer to a request that cannot be served; id is null when it is not known.
func errorOf(id json.RawMessage, e *rpcError) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	e.Message = safe.Lines(e.Message)
	return bytes.Join([][]byte{[]byte(`{"jsonrpc":"2.0","id":`), id, []byte(`,"error":`), jsonOf(e), []byte(`}`)}, nil)
}

// notificationOf is a notification.
func notificationOf(method string, params any) []byte {
	return jsonOf(struct {
		JSONRPC string `json:"jsonrpc"`
		Method  string `json:"method"`
		Params  any    `json:"params,omitempty"`
	}{sdk.JSONRPC_VERSION, method, params})
}
