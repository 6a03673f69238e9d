package rpc

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"corral/internal/strictjson"
	"corral/internal/text"
	"corral/job"
)

// A reader reads the parameters of a request, field by field. Its first fault stays; what is read after it is zero. null
// is as good as absent, and what is not asked for is not looked at.
type reader struct {
	fields map[string]json.RawMessage
	fault  *fault
}

// read begins to read an object that is known to be valid JSON.
func read(object json.RawMessage) *reader {
	r := &reader{fields: map[string]json.RawMessage{}}
	if object != nil {
		for _, e := range strictjson.Entries(object) {
			r.fields[e.Key] = e.Value
		}
	}
	return r
}

// fail is for the first fault.
func (r *reader) fail(f *fault) {
	if r.fault == nil {
		r.fault = f
	}
}

func (r *reader) wrong(name, want string) { r.fail(invalid("`%s` is not %s", name, want)) }

// has returns the value of a field, nil for null and none.
func (r *reader) has(name string) json.RawMessage {
	if raw := r.fields[name]; r.fault == nil && !isNull(raw) {
		return raw
	}
	return nil
}

// isNull reports whether a field is there and null.
func (r *reader) isNull(name string) bool {
	raw, there := r.fields[name]
	return there && isNull(raw)
}

func (r *reader) must(name string) json.RawMessage {
	raw := r.has(name)
	if raw == nil {
		r.fail(invalid("missing field `%s`", name))
	}
	return raw
}

func (r *reader) flag(name string) bool {
	raw := r.has(name)
	if raw == nil {
		return false
	}
	if raw[0] != 't' && raw[0] != 'f' {
		r.wrong(name, "a boolean")
	}
	return raw[0] == 't'
}

// text reads a string of a field that raw is the value of; nil is "".
func (r *reader) text(name string, raw json.RawMessage) string {
	if raw == nil {
		return ""
	}
	if raw[0] != '"' {
		r.wrong(name, "a string")
		return ""
	}
	return strictjson.Unquote(raw)
}

// name reads what a process is called.
func (r *reader) name(field string, raw json.RawMessage) string {
	s := r.text(field, raw)
	if len(s) > maxID {
		r.fail(invalid("`%s` has more than %d bytes", field, maxID))
	}
	return s
}

func (r *reader) integer(name string) (n int64, given bool) {
	raw := r.has(name)
	if raw == nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		r.wrong(name, "a whole number of 64 bits")
	}
	return n, true
}

// count reads a number that is not negative; what is too large for an int64 is the largest.
func (r *reader) count(name string) (n int64, given bool) {
	raw := r.has(name)
	if raw == nil {
		return 0, false
	}
	u, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil {
		r.wrong(name, "a whole number that is not negative")
	}
	return int64(min(u, math.MaxInt64)), true
}

// texts reads an array of strings, which has to be there.
func (r *reader) texts(name string, raw json.RawMessage) []string {
	if raw == nil {
		return nil
	}
	if raw[0] != '[' {
		r.wrong(name, "an array of strings")
		return nil
	}
	list := []string{}
	for _, e := range strictjson.Elements(raw, strictjson.MaxEntries) {
		if e[0] != '"' {
			r.wrong(name, "an array of strings")
			return nil
		}
		list = append(list, strictjson.Unquote(e))
	}
	return list
}

// variables reads an object of strings and nulls.
func (r *reader) variables(name string) map[string]*string {
	raw := r.has(name)
	if raw == nil {
		return nil
	}
	if raw[0] != '{' {
		r.wrong(name, "an object of strings")
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
			r.wrong(name+"."+text.Line(e.Key, maxWord), "a string")
		}
	}
	return set
}

// size reads {rows, cols}; both may be 0, which is for the caller to refuse.
func (r *reader) size(name string, raw json.RawMessage) job.Size {
	inner := r.object(name, raw)
	size := job.Size{Rows: inner.side("rows"), Cols: inner.side("cols")}
	r.inherit(inner)
	return size
}

func (r *reader) side(name string) uint16 {
	n, err := strconv.ParseUint(string(r.must(name)), 10, 16)
	if err != nil {
		r.wrong(name, "a whole number from 0 to 65535")
	}
	return uint16(n)
}

// object begins to read an object within another one.
func (r *reader) object(name string, raw json.RawMessage) *reader {
	if raw == nil || raw[0] != '{' {
		if raw != nil {
			r.wrong(name, "an object")
		}
		return &reader{fault: r.fault}
	}
	return read(raw)
}

// inherit takes the fault of an object within.
func (r *reader) inherit(inner *reader) {
	if inner.fault != nil {
		r.fail(inner.fault)
	}
}

// quoted is a name as errors have it: a JSON string.
func quoted(name string) string { return string(encode(strings.ToValidUTF8(name, "\uFFFD"))) }
