package strictjson

import (
	"bytes"
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"
)

// An Entry is a key of an object and its value, as it was written.
type Entry struct {
	Key   string
	Value json.RawMessage
}

// Entries returns the entries of an object in their order, nil if data is not an object. The values are parts of data. Keys are
// unique if Check accepted data.
func Entries(data []byte) []Entry {
	d := newTokens(data)
	defer release(d)
	if d.PeekKind() != '{' {
		return nil
	}
	_, _ = d.ReadToken()
	found := []Entry{}
	for d.PeekKind() == '"' {
		key, err := valueOf(d, data)
		if err != nil {
			return nil
		}
		value, err := valueOf(d, data)
		if err != nil {
			return nil
		}
		found = append(found, Entry{Unquote(key), value})
	}
	if _, err := d.ReadToken(); err != nil {
		return nil
	}
	return found
}

// Elements returns the elements of an array, at most limit and one more; nil if data is not an array. They are parts of data.
func Elements(data []byte, limit int) []json.RawMessage {
	d := newTokens(data)
	defer release(d)
	if d.PeekKind() != '[' {
		return nil
	}
	_, _ = d.ReadToken()
	found := []json.RawMessage{}
	for d.PeekKind() != ']' && len(found) <= limit {
		value, err := valueOf(d, data)
		if err != nil {
			return nil
		}
		found = append(found, value)
	}
	return found
}

// Unquote returns the text of a JSON string, which must be valid. Half of a surrogate pair becomes U+FFFD.
func Unquote(raw []byte) string {
	s, _ := Text(raw)
	return s
}

// Text is like Unquote. ok is false if the string has half of a surrogate pair.
func Text(raw []byte) (s string, ok bool) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	text, err := jsontext.AppendUnquote(nil, raw)
	return string(text), err == nil
}

// Marshal returns the JSON of v on one line, without escaping for HTML.
func Marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// Encode is Marshal for a value that can be encoded; it returns null for another one.
func Encode(v any) json.RawMessage {
	raw, err := Marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return raw
}

// Number is the Kind of a number.
const Number = "a number"

// Kind returns the type of a JSON value with its article, for error messages.
func Kind(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return Number
}
