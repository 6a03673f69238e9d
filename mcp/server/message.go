package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	sdk "github.com/mark3labs/mcp-go/mcp"

	"corral/internal/jsonrpc"
	"corral/internal/strictjson"
	"corral/mcp/tool"
)

// Codes of JSON-RPC errors beside those of package jsonrpc.
const (
	codeHeader  = sdk.HEADER_MISMATCH
	codeVersion = sdk.UNSUPPORTED_PROTOCOL_VERSION
	codeBusy    = -32000 // in the range that JSON-RPC reserves for servers
)

const (
	maxID    = 256 // bytes of an encoded request id
	maxLabel = 256 // bytes of _meta["corral/session"]
)

// dialect is the form of this protocol's messages.
var dialect = jsonrpc.Dialect{Versioned: true, MaxID: maxID}

// Known keys. A key that differs from one in case only is an error, because encoding/json, which decodes the message later,
// would accept it.
var (
	envelopeKeys = []string{"jsonrpc", "id", "method", "params", "result", "error"}
	paramKeys    = []string{
		"_meta", "name", "arguments", "task", "cursor", "level", "uri", "ref", "notifications", "requestId", "reason",
		"protocolVersion", "capabilities", "clientInfo", "inputResponses", "requestState",
	}
)

// A message is a client's JSON-RPC message: a request, a notification (without id), or a response (without method), which is
// ignored because this server sends no requests.
type message struct {
	id     json.RawMessage // as encoded by the client; nil for a notification
	method string
	params []strictjson.Entry
	meta   meta

	// Parameters of tools/call and of notifications/cancelled.
	tool      string
	arguments json.RawMessage   // of tools/call only; an object unless fault is set
	fault     *strictjson.Fault // why the arguments are invalid
	cancels   json.RawMessage   // id of the request to cancel
}

// meta holds the members of params._meta that this package uses.
type meta struct {
	progress json.RawMessage // progressToken; nil: no progress requested
	version  string          // "io.modelcontextprotocol/protocolVersion"
	session  string          // "corral/session"
	trace    string          // "traceparent", not validated
	state    string          // "tracestate", not validated
	// capable is "io.modelcontextprotocol/clientCapabilities", nil if absent.
	capable json.RawMessage
}

// modern reports whether the request is without a session, as since 2026-07-28.
func (m *message) modern() bool { return sdk.IsModernProtocol(m.meta.version) }

// isCall reports whether the message is tools/call.
func (m *message) isCall() bool { return m.method == string(sdk.MethodToolsCall) }

// parseMessage parses one message. If it returns an error, the message has the id for the response, if one was found.
func parseMessage(data []byte) (*message, *jsonrpc.Error) {
	m := &message{}
	f, within := checkJSON(data)
	switch { // parse only the id of an invalid message, whose decoded form may be far larger
	case f != nil && f.Syntax:
		m.id = dialect.FindID(data)
		return m, jsonrpc.Errorf(jsonrpc.CodeParse, "%v", f)
	case bytes.TrimLeft(data, " \t\r\n")[0] != '{':
		return m, jsonrpc.Errorf(jsonrpc.CodeRequest, "a message must be one JSON object")
	case f != nil && len(f.Path) == 0: // fault in the envelope: the id cannot be trusted
		return m, jsonrpc.Errorf(jsonrpc.CodeRequest, "%v", f)
	case f != nil:
		m.id = dialect.FindID(data)
		return m, jsonrpc.Errorf(jsonrpc.CodeRequest, "%v", f)
	}
	top := strictjson.Entries(data)
	m.id = idOf(top)
	if err := m.readEnvelope(top); err != nil {
		return m, err
	}
	m.fault = within
	if within != nil && !m.isCall() {
		within.Path = append([]string{"params", "arguments"}, within.Path...)
		return m, jsonrpc.Errorf(jsonrpc.CodeRequest, "%v", within)
	}
	return m, m.readParams()
}

func (m *message) readEnvelope(top []strictjson.Entry) *jsonrpc.Error {
	var version, method string
	var answer bool
	for _, e := range top {
		if word := misspelled(e.Key, envelopeKeys); word != "" {
			return jsonrpc.Errorf(jsonrpc.CodeRequest, "the key %q must be spelled %q", tool.Clip(e.Key), word)
		}
		switch e.Key {
		case "jsonrpc":
			version = jsonrpc.String(e.Value)
		case "id":
			if m.id == nil {
				return jsonrpc.Errorf(jsonrpc.CodeRequest, "id must be a string or a number of at most %d bytes, not beyond ±1.8e308", maxID)
			}
		case "method":
			method = jsonrpc.String(e.Value)
			if method == "" {
				return jsonrpc.Errorf(jsonrpc.CodeRequest, "method must be a non-empty string")
			}
		case "params":
			m.params = strictjson.Entries(e.Value)
			if m.params == nil {
				return jsonrpc.Errorf(jsonrpc.CodeParams, "params must be an object")
			}
		case "result", "error":
			answer = true
		}
	}
	m.method = method
	switch {
	case version != sdk.JSONRPC_VERSION:
		return jsonrpc.Errorf(jsonrpc.CodeRequest, `jsonrpc must be "2.0"`)
	case method == "" && !answer:
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "the message has no method")
	case method != "" && answer:
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "the message has both a method and a result or an error")
	}
	return nil
}

func (m *message) readParams() *jsonrpc.Error {
	if m.isCall() {
		m.arguments = json.RawMessage("{}")
	}
	for _, e := range m.params {
		if word := misspelled(e.Key, paramKeys); word != "" {
			return jsonrpc.Errorf(jsonrpc.CodeParams, "params: the key %q must be spelled %q", tool.Clip(e.Key), word)
		}
		switch {
		case e.Key == "_meta":
			if err := m.meta.read(e.Value); err != nil {
				return err
			}
		case e.Key == "name" && m.isCall():
			m.tool = jsonrpc.String(e.Value)
		case e.Key == "arguments" && m.isCall():
			m.arguments = e.Value
		case e.Key == "requestId":
			m.cancels = e.Value
		}
	}
	if m.isCall() && m.tool == "" {
		return jsonrpc.Errorf(jsonrpc.CodeParams, "params.name must be the name of a tool")
	}
	if m.isCall() && m.arguments[0] != '{' { // a tool's error, which models see, unlike JSON-RPC errors
		m.fault = &strictjson.Fault{What: "must be one JSON object"}
	}
	return nil
}

func (m *meta) read(raw json.RawMessage) *jsonrpc.Error {
	if raw[0] != '{' && raw[0] != 'n' {
		return jsonrpc.Errorf(jsonrpc.CodeParams, "params._meta must be an object")
	}
	for _, e := range strictjson.Entries(raw) {
		switch e.Key {
		case "progressToken":
			if m.progress = dialect.ID(e.Value); m.progress == nil {
				return jsonrpc.Errorf(jsonrpc.CodeParams, "progressToken must be a string or a number of at most %d bytes, not beyond ±1.8e308", maxID)
			}
		case sdk.MetaKeyProtocolVersion:
			m.version = jsonrpc.String(e.Value)
		case sdk.MetaKeyClientCapabilities:
			m.capable = e.Value
		case "corral/session":
			m.session = jsonrpc.String(e.Value)
			if m.session == "" || len(m.session) > maxLabel {
				return jsonrpc.Errorf(jsonrpc.CodeParams, "_meta corral/session must be a string of 1 to %d bytes", maxLabel)
			}
		case "traceparent":
			m.trace = jsonrpc.String(e.Value)
		case "tracestate":
			m.state = jsonrpc.String(e.Value)
		}
	}
	return nil
}

func idOf(top []strictjson.Entry) json.RawMessage {
	n := slices.IndexFunc(top, func(e strictjson.Entry) bool { return e.Key == "id" })
	if n < 0 {
		return nil
	}
	return dialect.ID(top[n].Value)
}

// envelope re-encodes a request for encoding/json, so that both parsers see the same.
func (m *message) envelope() json.RawMessage {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"jsonrpc":"2.0","id":%s,"method":%s,"params":{`, m.id, strictjson.Encode(m.method))
	for n, e := range m.params {
		if n > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s:%s", strictjson.Encode(e.Key), e.Value)
	}
	b.WriteString("}}")
	return b.Bytes()
}

// checkModern returns why a request of 2026-07-28 or later cannot be served, nil if it can.
func (m *message) checkModern() *jsonrpc.Error {
	var capabilities sdk.ClientCapabilities
	switch {
	case len(m.meta.capable) == 0 || m.meta.capable[0] != '{' || json.Unmarshal(m.meta.capable, &capabilities) != nil:
		return jsonrpc.Errorf(jsonrpc.CodeParams, "missing or invalid _meta field %s", sdk.MetaKeyClientCapabilities)
	case !sdk.IsValidProtocolVersion(m.meta.version):
		return unsupported(m.meta.version)
	}
	return nil
}

func unsupported(version string) *jsonrpc.Error {
	e := sdk.UnsupportedProtocolVersionError{Version: tool.Clip(version), Supported: sdk.ValidProtocolVersions}.JSONRPCError().Error
	refusal := jsonrpc.Errorf(e.Code, "%s", e.Message)
	refusal.Data = e.Data
	return refusal
}
