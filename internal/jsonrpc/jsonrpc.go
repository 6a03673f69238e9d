// Package jsonrpc reads and writes the parts of JSON-RPC 2.0 messages that two protocols share: ids, responses, notifications,
// errors and bounded lines.
//
// What a message must look like beyond that is each protocol's own; package strictjson checks that it is JSON which is read in
// one way only.
package jsonrpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"corral/internal/strictjson"
	"corral/internal/text"
)

// Error codes of the specification. Those from -32000 to -32099 are for servers.
const (
	CodeParse    = -32700 // the text is not JSON
	CodeRequest  = -32600 // the JSON is not a request
	CodeMethod   = -32601 // no such method
	CodeParams   = -32602
	CodeInternal = -32603
)

// An Error is the error of a request that was not served.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Errorf returns an error whose message is safe to print: what a client wrote cannot control a terminal.
func Errorf(code int, format string, values ...any) *Error {
	return &Error{Code: code, Message: text.Lines(fmt.Sprintf(format, values...))}
}

// A Dialect is how a protocol writes messages.
type Dialect struct {
	Versioned bool // messages have "jsonrpc":"2.0"
	MaxID     int  // maximum number of bytes of an id, as it is encoded
	Integers  bool // ids that are numbers are 64-bit integers; otherwise they are those that a float64 can be
}

// ID returns raw if it is a valid id, else nil. Callers rely on its being a string or a number that is on one line.
func (d Dialect) ID(raw json.RawMessage) json.RawMessage {
	switch {
	case len(raw) == 0 || len(raw) > d.MaxID:
		return nil
	case raw[0] == '"':
		return raw
	case raw[0] != '-' && (raw[0] < '0' || raw[0] > '9'):
		return nil
	}
	var err error
	if d.Integers {
		_, err = strconv.ParseInt(string(raw), 10, 64)
	} else { // what decodes numbers to float64 decodes no message with a larger one, such as 1e400, nor the response
		_, err = strconv.ParseFloat(string(raw), 64)
	}
	if err != nil {
		return nil
	}
	return raw
}

// Key returns the same key for equal ids, for example "a" and "\u0061".
func Key(id json.RawMessage) string {
	if len(id) > 0 && id[0] == '"' {
		return `"` + strictjson.Unquote(id)
	}
	return string(id)
}

// String returns the value of a JSON string, "" if raw is not one.
func String(raw json.RawMessage) string {
	if len(raw) == 0 || raw[0] != '"' {
		return ""
	}
	return strictjson.Unquote(raw)
}

// Response returns the beginning of the response to a request, up to the result, which a closing brace must follow.
func (d Dialect) Response(id json.RawMessage) []byte {
	return slices.Concat(d.begin(), []byte(`"id":`), id, []byte(`,"result":`))
}

// Result returns the response to a request.
func (d Dialect) Result(id, result json.RawMessage) []byte {
	return slices.Concat(d.begin(), []byte(`"id":`), id, []byte(`,"result":`), result, []byte(`}`))
}

// Error returns an error response; a nil id becomes null.
func (d Dialect) Error(id json.RawMessage, e *Error) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	return slices.Concat(d.begin(), []byte(`"id":`), id, []byte(`,"error":`), strictjson.Encode(e), []byte(`}`))
}

// Notification returns a notification.
func (d Dialect) Notification(method string, params any) []byte {
	name, values := strictjson.Encode(method), strictjson.Encode(params)
	return slices.Concat(d.begin(), []byte(`"method":`), name, []byte(`,"params":`), values, []byte(`}`))
}

func (d Dialect) begin() []byte {
	if d.Versioned {
		return []byte(`{"jsonrpc":"2.0",`)
	}
	return []byte(`{`)
}

// FindID returns the id of an invalid message, nil if it has none or parsers could disagree about it.
func (d Dialect) FindID(data []byte) json.RawMessage {
	f := IDFinder{Dialect: d}
	f.Feed(data)
	if f.depth != 0 || f.quoted {
		return nil
	}
	return f.ID
}

// An IDFinder finds the id of a message that is read in pieces and not kept, so that the error response can have it; clients
// often write the id last. It buffers the text at the outermost level since the last comma, and takes it for the id if it is a
// valid one and the only one.
type IDFinder struct {
	Dialect
	ID            json.RawMessage // nil if none was found so far
	ids           int             // number of ids seen
	depth         int
	quoted, after bool   // in a string; after a backslash in a string
	kept          []byte // text of the current member, at most 2*MaxID+1 bytes
}

// Feed goes through the next piece.
func (f *IDFinder) Feed(p []byte) {
	for _, c := range p {
		switch {
		case f.quoted:
			f.keep(c)
			f.quoted = f.after || c != '"'
			f.after = !f.after && c == '\\'
		case c == '"':
			f.quoted = true
			f.keep(c)
		case c == '{' || c == '[':
			f.keep(c) // so that "id":{ counts as an id, although an invalid one
			f.depth++
		case c == ',' || c == '}' || c == ']':
			f.end(c)
		default:
			f.keep(c)
		}
	}
}

func (f *IDFinder) keep(c byte) {
	if f.depth == 1 && len(f.kept) <= 2*f.MaxID {
		f.kept = append(f.kept, c)
	}
}

// end evaluates a member at the comma or bracket after it.
func (f *IDFinder) end(c byte) {
	if f.depth == 1 {
		key, value, _ := bytes.Cut(f.kept, []byte{':'})
		if name := keyLikeID(bytes.TrimSpace(key)); name != "" {
			f.ids++
			f.ID = nil
			if value = bytes.TrimSpace(value); f.ids == 1 && name == "id" && strictjson.Syntax(value) == nil {
				f.ID = bytes.Clone(f.Dialect.ID(value))
			}
		}
		f.kept = f.kept[:0]
	}
	if c != ',' {
		f.depth--
	}
}

// keyLikeID returns the key if some parser would take it for "id", else "". The length check excludes most keys: each of the
// two characters is at most six bytes long, as \u0069.
func keyLikeID(key []byte) string {
	name := key
	if bytes.IndexByte(key, '\\') >= 0 && len(key) <= len(`"\u0069\u0064"`) && key[0] == '"' && strictjson.Syntax(key) == nil {
		name = []byte(`"` + strictjson.Unquote(key) + `"`)
	}
	if !bytes.EqualFold(name, []byte(`"id"`)) {
		return ""
	}
	return string(name[1 : len(name)-1])
}
