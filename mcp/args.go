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

// A field is a row of a tool's table of arguments: what decodes an argument, and what is said of it in the published
// schema. into says of which type it is: *string, *int, *bool, *[]string or, for an object with fields of its own, the
// *bool that tells whether it was there. What into points at before decoding is the default.
type field struct {
	name     string
	about    string // for the schema; it says what the schema's words cannot
	into     any
	required bool
	min, max int      // of a number; of the length of a string, or of each in a list
	bytes    bool     // lengths are in bytes of UTF-8; else in characters
	items    int      // at most so many in a list
	enum     []string // nil is any
	pattern  func(string) bool
	expr     string // the pattern, as a regular expression for the schema
	noNUL    bool
	fields   []field // of an object
	// each returns the fields of the next object of a list of them; into tells whether the list was there.
	each func() []field
	// coerce takes a string for the number, the truth or the list of one that is wanted: "400", "true", "a query".
	coerce bool
	// bare says that null is a wrong value, and not an argument that is not there, where that is what it is else.
	bare bool
	// own says that the tool itself checks bounds, which are for the schema alone, and that null stands for an argument that
	// is not there.
	own bool
}

// maxShown is how many bytes of what a client wrote are in an error.
const maxShown = 64

// invalid is an error about one argument; "" is about all of them.
func invalid(argument, format string, values ...any) *Error {
	e := &Error{Code: CodeInvalid, Message: fmt.Sprintf(format, values...)}
	if argument != "" {
		e.Message = argument + ": " + e.Message
		e.Details = map[string]any{"argument": argument}
	}
	return e
}

// decodeArguments reads one JSON object into the fields of a table. An unknown key is an error, one in another case or
// there twice as well; so is null, where it is not the tool's own affair: an argument that is not given is not there.
func decodeArguments(raw json.RawMessage, fields []field) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = json.RawMessage("{}")
	}
	if !json.Valid(raw) {
		return invalid("", "not valid JSON")
	}
	return decodeObject(raw, "", fields, false)
}

// decodeLenient is decodeArguments for tools whose callers send what they like: an unknown key is ignored, and null is an
// argument that is not there.
func decodeLenient(raw json.RawMessage, fields []field) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = json.RawMessage("{}")
	}
	if !json.Valid(raw) {
		return invalid("", "not valid JSON")
	}
	return decodeObject(raw, "", fields, true)
}

// decodeObject reads an object whose keys are named below prefix in errors.
func decodeObject(raw json.RawMessage, prefix string, fields []field, lenient bool) error {
	if kind(raw) != "an object" {
		return invalid(strings.TrimSuffix(prefix, "."), "an object is wanted, not %s", kind(raw))
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
			return invalid(name, "it is there twice")
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
			return invalid(prefix+f.name, "it is required")
		}
	}
	return nil
}

// unknown names the key and the one that may have been meant.
func unknown(prefix, key string, fields []field) *Error {
	message := fmt.Sprintf("unknown argument %q", prefix+shown(key))
	if near := meant(key, fields); near != "" {
		message += fmt.Sprintf(": did you mean %q?", prefix+near)
	}
	return &Error{Code: CodeInvalid, Message: message, Details: map[string]any{"argument": prefix + shown(key)}}
}

// shown is s, cut at maxShown bytes.
func shown(s string) string { return safe.Cut(s, maxShown) }

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
			return invalid(name, "true or false is wanted, not %s", kind(raw))
		}
		*into = word == "true"
		return nil
	}
	return &Error{Code: CodeInternal, Message: fmt.Sprintf("%s: no way to decode into %T", name, f.into)}
}

func (f *field) decodeString(name string, raw json.RawMessage, into *string) error {
	if kind(raw) != "a string" {
		return invalid(name, "a string is wanted, not %s", kind(raw))
	}
	if loneSurrogate(raw) {
		return invalid(name, "it has half of a surrogate pair, which is no text")
	}
	s := strictjson.Unquote(raw)
	if err := f.checkString(name, s); err != nil {
		return err
	}
	*into = s
	return nil
}

// checkString returns a nil error, and not a nil *Error, for a string that will do.
func (f *field) checkString(name, s string) error {
	length, unit := len(s), "bytes"
	if !f.bytes {
		length, unit = utf8.RuneCountInString(s), "characters"
	}
	switch {
	case f.enum != nil && !slices.Contains(f.enum, s):
		return invalid(name, "%q is none of: %s", shown(s), strings.Join(f.enum, ", "))
	case f.own:
	case length < f.min:
		return invalid(name, "%d %s, at least %d are wanted", length, unit, f.min)
	case f.max > 0 && length > f.max:
		return invalid(name, "%d %s, at most %d are accepted", length, unit, f.max)
	case f.noNUL && strings.ContainsRune(s, 0):
		return invalid(name, "it has a NUL byte")
	case f.pattern != nil && !f.pattern(s):
		return invalid(name, "%q does not match %s", shown(s), f.expr)
	}
	return nil
}

// decodeInt reads a whole number; 1000.0 and 1e3 are such.
func (f *field) decodeInt(name string, raw json.RawMessage, into *int) error {
	if f.coerce && kind(raw) == "a string" {
		raw = json.RawMessage(strings.TrimSpace(strictjson.Unquote(raw)))
	}
	switch {
	case f.bare && kind(raw) == "null":
		return invalid(name, "null is out of range: %d to %d", f.min, f.max)
	case kind(raw) != "a number":
		return invalid(name, "a whole number is wanted, not %s", kind(raw))
	}
	n, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || n != math.Trunc(n) {
		return invalid(name, "%s is no whole number", safe.Line(string(raw), maxShown))
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
		return invalid(name, "an array of strings is wanted, not %s", kind(raw))
	}
	items := strictjson.Elements(raw, f.items)
	if len(items) > f.items {
		return invalid(name, "more than %d entries", f.items)
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

// decodeObjects reads a list of objects, whose unknown keys are ignored: it is of tools that do that.
func (f *field) decodeObjects(name string, raw json.RawMessage) error {
	if kind(raw) != "an array" {
		return invalid(name, "an array of objects is wanted, not %s", kind(raw))
	}
	items := strictjson.Elements(raw, f.items)
	if len(items) > f.items {
		return invalid(name, "more than %d entries", f.items)
	}
	for n, item := range items {
		if err := decodeObject(item, fmt.Sprintf("%s[%d].", name, n), f.each(), true); err != nil {
			return err
		}
	}
	return nil
}

// kind is the type of a JSON value, in words.
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

// loneSurrogate says whether a string has an escape that stands for half a character. The decoder would put another
// character into its place, and the program that runs would not be the one that was sent.
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

// escaped reads \uXXXX at the beginning of raw.
func escaped(raw []byte) (unit uint64, ok bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	return unit, err == nil
}

// meant returns the name that key is likely to stand for: the same in another case, one with the other in it, or one that
// is near. "" is none.
func meant(key string, fields []field) string {
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
