package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"corral/internal/nearest"
	"corral/internal/strictjson"

	safe "corral/internal/text"
)

// A field describes one argument of a tool, for decoding and for the published schema. The type of into determines the type
// of the argument: *string, *int, *bool, *[]string or, for an object (fields) and a list of objects (each), a *bool that is
// set if the argument was given. The value that into points to before decoding is the default.
type field struct {
	name     string
	about    string // description for the schema; says what the schema's keywords cannot
	into     any
	required bool
	min, max int      // of a number; of the length of a string or of each string in a list
	bytes    bool     // lengths are in bytes of UTF-8 instead of characters
	items    int      // maximum length of a list
	enum     []string // accepted values; nil accepts any
	pattern  func(string) bool
	expr     string // pattern as a regular expression, for the schema
	noNUL    bool
	fields   []field // of an object
	// each appends an element to a list of objects and returns the element's fields.
	each func() []field
	// coerce also accepts a string for a number, a boolean or a list of one: "400", "true", "a query".
	coerce bool
	// bare makes null an invalid value for a lenient tool, which otherwise treats null as an absent argument.
	bare bool
	// own means that the tool checks the bounds itself (they are for the schema only) and that null is an absent argument.
	own bool
}

// maxShown is the maximum number of bytes of client input quoted in an error.
const maxShown = 64

// invalid returns an error about one argument, or about all of them if argument is "".
func invalid(argument, format string, values ...any) *Error {
	e := &Error{Code: CodeInvalid, Message: fmt.Sprintf(format, values...)}
	if argument != "" {
		e.Message = argument + ": " + e.Message
		e.Details = map[string]any{"argument": argument}
	}
	return e
}

// decodeArguments decodes a JSON object into fields. Unknown and duplicate keys are errors, and so are keys that differ in
// case only. null is an error unless the field has own set, because an absent argument is to be left out.
func decodeArguments(raw json.RawMessage, fields []field) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = json.RawMessage("{}")
	}
	if !json.Valid(raw) {
		return invalid("", "not valid JSON")
	}
	return decodeObject(raw, "", fields, false)
}

// decodeLenient is decodeArguments for tools whose callers send more than the schema has: unknown keys are ignored, and null
// means that the argument is absent.
func decodeLenient(raw json.RawMessage, fields []field) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = json.RawMessage("{}")
	}
	if !json.Valid(raw) {
		return invalid("", "not valid JSON")
	}
	return decodeObject(raw, "", fields, true)
}

// decodeObject decodes an object. Errors name its keys with prefix in front.
func decodeObject(raw json.RawMessage, prefix string, fields []field, lenient bool) error {
	if kind(raw) != "an object" {
		return invalid(strings.TrimSuffix(prefix, "."), "must be an object, got %s", kind(raw))
	}
	seen := make([]bool, len(fields))
	for _, e := range strictjson.Entries(raw) {
		n := slices.IndexFunc(fields, func(f field) bool { return f.name == e.Key })
		if n < 0 && lenient {
			continue
		}
		if n < 0 {
			return unknown(prefix, e.Key, fields)
		}
		name := prefix + e.Key
		if seen[n] {
			return invalid(name, "duplicate key")
		}
		if kind(e.Value) == "null" && (fields[n].own || lenient && !fields[n].bare) {
			continue
		}
		seen[n] = true
		if err := fields[n].decode(name, e.Value); err != nil {
			return err
		}
	}
	for n, f := range fields {
		if f.required && !seen[n] {
			return invalid(prefix+f.name, "is required")
		}
	}
	return nil
}

// unknown returns the error for an unknown key, with the name of the argument that was probably meant.
func unknown(prefix, key string, fields []field) *Error {
	message := fmt.Sprintf("unknown argument %q", prefix+clip(key))
	if near := suggest(key, fields); near != "" {
		message += fmt.Sprintf(": did you mean %q?", prefix+near)
	}
	return &Error{Code: CodeInvalid, Message: message, Details: map[string]any{"argument": prefix + clip(key)}}
}

// clip returns s cut to maxShown bytes.
func clip(s string) string { return safe.Cut(s, maxShown) }

func (f *field) decode(name string, raw json.RawMessage) error {
	switch into := f.into.(type) {
	case *string:
		return f.decodeString(name, raw, into)
	case *int:
		return f.decodeInt(name, raw, into)
	case *[]string:
		return f.decodeList(name, raw, into)
	case *bool:
		if f.each != nil {
			*into = true
			return f.decodeObjects(name, raw)
		}
		if f.fields != nil {
			*into = true
			return decodeObject(raw, name+".", f.fields, false)
		}
		word := string(raw)
		if f.coerce && kind(raw) == "a string" {
			word = strings.TrimSpace(strictjson.Unquote(raw))
		}
		if word != "true" && word != "false" {
			return invalid(name, "must be true or false, got %s", kind(raw))
		}
		*into = word == "true"
		return nil
	}
	return &Error{Code: CodeInternal, Message: fmt.Sprintf("%s: cannot decode into %T", name, f.into)}
}

func (f *field) decodeString(name string, raw json.RawMessage, into *string) error {
	if kind(raw) != "a string" {
		return invalid(name, "must be a string, got %s", kind(raw))
	}
	if loneSurrogate(raw) {
		return invalid(name, "contains an unpaired surrogate escape, which is not valid text")
	}
	s := strictjson.Unquote(raw)
	if err := f.checkString(name, s); err != nil {
		return err
	}
	*into = s
	return nil
}

// checkString checks s against the field's bounds. It returns error, not *Error, so that a nil result compares equal to nil.
func (f *field) checkString(name, s string) error {
	length, unit := len(s), "bytes"
	if !f.bytes {
		length, unit = utf8.RuneCountInString(s), "characters"
	}
	switch {
	case f.enum != nil && !slices.Contains(f.enum, s):
		return invalid(name, "%q is not one of: %s", clip(s), strings.Join(f.enum, ", "))
	case f.own:
	case length < f.min:
		return invalid(name, "has %d %s, the minimum is %d", length, unit, f.min)
	case f.max > 0 && length > f.max:
		return invalid(name, "has %d %s, the maximum is %d", length, unit, f.max)
	case f.noNUL && strings.ContainsRune(s, 0):
		return invalid(name, "contains a NUL byte")
	case f.pattern != nil && !f.pattern(s):
		return invalid(name, "%q does not match %s", clip(s), f.expr)
	}
	return nil
}

// decodeInt decodes an integer, which may be written as 1000.0 or 1e3.
func (f *field) decodeInt(name string, raw json.RawMessage, into *int) error {
	if f.coerce && kind(raw) == "a string" {
		raw = json.RawMessage(strings.TrimSpace(strictjson.Unquote(raw)))
	}
	switch {
	case f.bare && kind(raw) == "null":
		return invalid(name, "null is out of range: %d to %d", f.min, f.max)
	case kind(raw) != "a number":
		return invalid(name, "must be an integer, got %s", kind(raw))
	}
	n, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || n != math.Trunc(n) {
		return invalid(name, "%s is not an integer", safe.Line(string(raw), maxShown))
	}
	if f.own {
		n = max(min(n, float64(f.max)), -1)
	} else if n < float64(f.min) || n > float64(f.max) {
		return invalid(name, "%s is out of range: %d to %d", safe.Line(string(raw), maxShown), f.min, f.max)
	}
	*into = int(n)
	return nil
}

func (f *field) decodeList(name string, raw json.RawMessage, into *[]string) error {
	if f.coerce && kind(raw) == "a string" {
		*into = make([]string, 1)
		return f.decodeString(name, raw, &(*into)[0])
	}
	if kind(raw) != "an array" {
		return invalid(name, "must be an array of strings, got %s", kind(raw))
	}
	items := strictjson.Elements(raw, f.items)
	if len(items) > f.items {
		return invalid(name, "must have at most %d entries", f.items)
	}
	list := make([]string, len(items))
	for n, item := range items {
		if err := f.decodeString(fmt.Sprintf("%s[%d]", name, n), item, &list[n]); err != nil {
			return err
		}
	}
	*into = list
	return nil
}

// decodeObjects decodes a list of objects. Unknown keys in them are ignored: only lenient tools have such lists.
func (f *field) decodeObjects(name string, raw json.RawMessage) error {
	if kind(raw) != "an array" {
		return invalid(name, "must be an array of objects, got %s", kind(raw))
	}
	items := strictjson.Elements(raw, f.items)
	if len(items) > f.items {
		return invalid(name, "must have at most %d entries", f.items)
	}
	for n, item := range items {
		if err := decodeObject(item, fmt.Sprintf("%s[%d].", name, n), f.each(), true); err != nil {
			return err
		}
	}
	return nil
}

// kind returns the type of a JSON value with its article, for error messages.
func kind(raw json.RawMessage) string {
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
	return "a number"
}

// loneSurrogate reports whether a string has an escape for half of a surrogate pair. encoding/json would replace it by
// U+FFFD, and the program that runs would differ from the one that was sent.
func loneSurrogate(raw json.RawMessage) bool {
	for {
		n := bytes.IndexByte(raw, '\\')
		if n < 0 || n+2 > len(raw) {
			return false
		}
		raw = raw[n:]
		unit, ok := escaped(raw)
		if !ok {
			raw = raw[2:]
			continue
		}
		raw = raw[6:]
		if unit < 0xd800 || unit > 0xdfff {
			continue
		}
		low, ok := escaped(raw)
		if unit > 0xdbff || !ok || low < 0xdc00 || low > 0xdfff {
			return true
		}
		raw = raw[6:]
	}
}

// escaped decodes \uXXXX at the beginning of raw.
func escaped(raw []byte) (unit uint64, ok bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	return unit, err == nil
}

// suggest returns the name of the field that key probably stands for: one that contains key or is contained in it, ignoring
// case, or one within a small edit distance. It returns "" if there is none.
func suggest(key string, fields []field) string {
	lower := strings.ToLower(key)
	names := make([]string, len(fields))
	for n, f := range fields {
		names[n] = f.name
		name := strings.ToLower(f.name)
		if len(lower) > 2 && (strings.Contains(name, lower) || strings.Contains(lower, name)) {
			return f.name
		}
	}
	return nearest.Of(key, names)
}

// member returns the value of a key in a valid JSON object, nil if it is absent.
func member(object json.RawMessage, name string) json.RawMessage {
	if object == nil {
		return nil
	}
	for _, e := range strictjson.Entries(object) {
		if e.Key == name {
			return e.Value
		}
	}
	return nil
}

// oneLine reports whether s can be found in a line.
func oneLine(s string) bool { return !strings.ContainsRune(s, '\n') }
