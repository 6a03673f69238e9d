package rpc

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"corral/internal/jsonrpc"
	"corral/internal/strictjson"
	"corral/internal/text"
	"corral/job"
)

// A reader reads the parameters of a request field by field. It keeps the first fault; values read after a fault are
// zero. null is treated as an absent field, and unknown fields are ignored.
type reader struct {
	fields map[string]json.RawMessage
	fault  *jsonrpc.Error
}

// read returns a reader for object, which must be valid JSON.
func read(object json.RawMessage) *reader {
	r := &reader{fields: map[string]json.RawMessage{}}
	if object != nil {
		for _, e := range strictjson.Entries(object) {
			r.fields[e.Key] = e.Value
		}
	}
	return r
}

// fail records f unless an earlier fault was recorded.
func (r *reader) fail(f *jsonrpc.Error) {
	if r.fault == nil {
		r.fault = f
	}
}

// wrongType records that the value of a field has another type, or is outside of its range.
func (r *reader) wrongType(name, want string, got json.RawMessage) {
	r.fail(invalid("`%s` must be %s, got %s", name, want, kind(got)))
}

// kind returns the type of a JSON value, or a number itself, for error messages.
func kind(raw json.RawMessage) string {
	if k := strictjson.Kind(raw); k != strictjson.Number {
		return k
	}
	return text.Line(string(raw), maxWord)
}

// optional returns the value of a field, or nil if it is null or absent.
func (r *reader) optional(name string) json.RawMessage {
	if raw := r.fields[name]; r.fault == nil && !isNull(raw) {
		return raw
	}
	return nil
}

// isNull reports whether a field is present and null.
func (r *reader) isNull(name string) bool {
	raw, there := r.fields[name]
	return there && isNull(raw)
}

func (r *reader) required(name string) json.RawMessage {
	raw := r.optional(name)
	if raw == nil {
		r.fail(invalid("missing field `%s`", name))
	}
	return raw
}

func (r *reader) boolean(name string) bool {
	raw := r.optional(name)
	if raw == nil {
		return false
	}
	if raw[0] != 't' && raw[0] != 'f' {
		r.wrongType(name, "a boolean", raw)
	}
	return raw[0] == 't'
}

// text returns the string in raw, the value of the field name; nil yields "".
func (r *reader) text(name string, raw json.RawMessage) string {
	if raw == nil {
		return ""
	}
	if raw[0] != '"' {
		r.wrongType(name, "a string", raw)
		return ""
	}
	return strictjson.Unquote(raw)
}

// name reads a process id of at most maxID bytes.
func (r *reader) name(field string, raw json.RawMessage) string {
	s := r.text(field, raw)
	if len(s) > maxID {
		r.fail(invalid("`%s` has %d bytes, at most %d are accepted", field, len(s), maxID))
	}
	return s
}

func (r *reader) integer(name string) (n int64, given bool) {
	raw := r.optional(name)
	if raw == nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		r.wrongType(name, "a 64-bit integer", raw)
	}
	return n, true
}

// count reads a non-negative integer. Values above the range of int64 become math.MaxInt64.
func (r *reader) count(name string) (n int64, given bool) {
	raw := r.optional(name)
	if raw == nil {
		return 0, false
	}
	u, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil {
		r.wrongType(name, "a non-negative integer", raw)
	}
	return int64(min(u, math.MaxInt64)), true
}

// stringArray returns the strings in raw, the value of the field name; nil yields nil.
func (r *reader) stringArray(name string, raw json.RawMessage) []string {
	if raw == nil {
		return nil
	}
	if raw[0] != '[' {
		r.wrongType(name, "an array of strings", raw)
		return nil
	}
	list := []string{}
	for _, e := range strictjson.Elements(raw, strictjson.MaxEntries) {
		if e[0] != '"' {
			r.wrongType(fmt.Sprintf("%s[%d]", name, len(list)), "a string", e)
			return nil
		}
		list = append(list, strictjson.Unquote(e))
	}
	return list
}

// environment reads an object whose values are strings or null.
func (r *reader) environment(name string) map[string]*string {
	raw := r.optional(name)
	if raw == nil {
		return nil
	}
	if raw[0] != '{' {
		r.wrongType(name, "an object of strings", raw)
		return nil
	}
	set := map[string]*string{}
	for _, e := range strictjson.Entries(raw) {
		switch {
		case isNull(e.Value):
			set[e.Key] = nil
		case e.Value[0] == '"':
			value := strictjson.Unquote(e.Value)
			set[e.Key] = &value
		default:
			r.wrongType(name+"."+text.Line(e.Key, maxWord), "a string or null", e.Value)
		}
	}
	return set
}

// size reads {rows, cols}. Both may be 0; the caller checks that.
func (r *reader) size(name string, raw json.RawMessage) job.Size {
	inner := r.object(name, raw)
	size := job.Size{Rows: inner.dimension("rows"), Cols: inner.dimension("cols")}
	r.inherit(inner)
	return size
}

func (r *reader) dimension(name string) uint16 {
	raw := r.required(name)
	n, err := strconv.ParseUint(string(raw), 10, 16)
	if err != nil && raw != nil {
		r.wrongType(name, "an integer from 1 to 65535", raw)
	}
	return uint16(n)
}

// object returns a reader for a nested object. If raw is nil, it reads nothing.
func (r *reader) object(name string, raw json.RawMessage) *reader {
	if raw == nil || raw[0] != '{' {
		if raw != nil {
			r.wrongType(name, "an object", raw)
		}
		return &reader{fault: r.fault}
	}
	return read(raw)
}

// inherit records the fault of the reader of a nested object.
func (r *reader) inherit(inner *reader) {
	if inner.fault != nil {
		r.fail(inner.fault)
	}
}

// quoted returns name as a JSON string, for error messages.
func quoted(name string) string {
	return string(strictjson.Encode(strings.ToValidUTF8(name, "\uFFFD")))
}
