package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"corral/internal/strictjson"

	safe "corral/internal/text"
)

// A Mode is how strictly a tool's arguments are decoded.
type Mode int

// Modes of decoding.
const (
	// Strict rejects unknown keys. null is a value of the wrong type, because an absent argument is to be left out.
	Strict Mode = iota
	// Lenient is for tools whose callers send more than the schema has. Unknown keys are ignored (Unknown names them), null means
	// that the argument is absent, and a string is accepted for a number, a boolean or a list of one: "400", "true", "a query".
	Lenient
	// Unchecked rejects unknown keys, but checks no bounds: the tool does, in words of its own. null means that the argument
	// is absent. A number that is out of range becomes the maximum, or the minimum less one. Its schemas do not say that there are
	// no other keys, as those of Tolerant.
	Unchecked
	// Tolerant rejects unknown keys, but accepts values as Lenient does. Its schemas do not say that there are no other keys,
	// so that hosts let through the names that a tool accepts without publishing them, see the option hidden.
	Tolerant
)

// MaxShown is the maximum number of bytes of client input quoted in an error.
const MaxShown = 64

// maxFault is the maximum number of bytes of the description of a syntax error, which quotes a character of the input at most.
const maxFault = 256

// Invalid returns an error about one argument, or about all of them if argument is "".
func Invalid(argument, format string, values ...any) *Error {
	e := &Error{Code: CodeInvalid, Message: fmt.Sprintf(format, values...)}
	if argument != "" {
		e.Message = argument + ": " + e.Message
		e.Details = map[string]any{"argument": argument}
	}
	return e
}

// Decode decodes a JSON object into the struct that into points to, whose tags describe the arguments (see
// argumentsOf). Duplicate keys are errors in every mode.
func Decode(raw json.RawMessage, into any, mode Mode) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = json.RawMessage("{}")
	}
	if f := strictjson.Syntax(raw); f != nil {
		return Invalid("", "%s", safe.Line(f.What, maxFault))
	}
	v := reflect.ValueOf(into).Elem()
	d := decoder{mode: mode}
	return d.object(raw, "", argumentsOf(v.Type()), v)
}

// A decoder decodes arguments in one mode.
type decoder struct {
	mode    Mode
	ignored *[]string // receives a sentence for each unknown key that is ignored; may be nil
}

// converts reports whether strings are accepted for values of other types.
func (d decoder) converts() bool { return d.mode == Lenient || d.mode == Tolerant }

// object decodes an object. Errors name its keys with prefix in front.
func (d decoder) object(raw json.RawMessage, prefix string, list []argument, into reflect.Value) error {
	if strictjson.Kind(raw) != "an object" {
		return Invalid(strings.TrimSuffix(prefix, "."), "must be an object, got %s", strictjson.Kind(raw))
	}
	for n := range list {
		list[n].setDefault(into)
	}
	seen := make([]bool, len(list))
	for _, e := range strictjson.Entries(raw) {
		n := slices.IndexFunc(list, func(a argument) bool { return a.means(e.Key) })
		switch {
		case n < 0 && d.mode == Lenient:
			d.ignore(prefix, e.Key, list)
			continue
		case n < 0:
			return unknown(prefix, e.Key, list)
		}
		key := d.shown(e.Key, &list[n])
		name := prefix + key
		if seen[n] && key != list[n].name {
			return Invalid(name, "means the same as %s, which is given as well", list[n].name)
		} else if seen[n] {
			return Invalid(name, "duplicate key")
		}
		if strictjson.Kind(e.Value) == "null" && d.mode != Strict && !list[n].noNull {
			continue
		}
		seen[n] = true
		if err := d.value(&list[n], name, e.Value, into.FieldByIndex(list[n].index)); err != nil {
			return err
		}
	}
	for n := range list {
		if list[n].required && !seen[n] {
			return Invalid(prefix+list[n].name, "is required")
		}
	}
	return nil
}

// shown returns the name of an argument in errors, which in mode Tolerant teach the names that the schema has.
func (d decoder) shown(key string, a *argument) string {
	if d.mode == Tolerant {
		return a.name
	}
	return key
}

// Clip returns s cut to maxShown bytes.
func Clip(s string) string { return safe.Cut(s, MaxShown) }

// value decodes one argument. It allocates what into points to, if into is a pointer.
func (d decoder) value(a *argument, name string, raw json.RawMessage, into reflect.Value) error {
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	switch {
	case into.Kind() == reflect.String:
		return d.string(a, name, raw, into)
	case into.CanInt():
		return d.integer(a, name, raw, into)
	case into.Kind() == reflect.Bool:
		return d.boolean(name, raw, into)
	case into.Kind() == reflect.Struct:
		return d.object(raw, name+".", a.members, into)
	case a.members != nil:
		return d.objects(a, name, raw, into)
	}
	return d.strings(a, name, raw, into)
}

func (d decoder) boolean(name string, raw json.RawMessage, into reflect.Value) error {
	word := string(raw)
	if d.converts() && strictjson.Kind(raw) == "a string" {
		word = strings.TrimSpace(strictjson.Unquote(raw))
	}
	if word != "true" && word != "false" {
		return Invalid(name, "must be true or false, got %s", strictjson.Kind(raw))
	}
	into.SetBool(word == "true")
	return nil
}

func (d decoder) string(a *argument, name string, raw json.RawMessage, into reflect.Value) error {
	if strictjson.Kind(raw) != "a string" {
		return Invalid(name, "must be a string, got %s", strictjson.Kind(raw))
	}
	s, ok := strictjson.Text(raw)
	if !ok { // with U+FFFD in its place, the program that runs would differ from the one that was sent
		return Invalid(name, "contains an unpaired surrogate escape, which is not valid text")
	}
	if a.named != nil {
		s = a.named.Named(s)
	}
	if d.mode != Unchecked {
		if err := a.check(name, s); err != nil {
			return err
		}
	}
	into.SetString(s)
	return nil
}

// check checks s against the argument's bounds. It returns error, not *Error, so that a nil result compares equal to nil.
func (a *argument) check(name, s string) error {
	length, unit := len(s), "bytes"
	if !a.bytes {
		length, unit = utf8.RuneCountInString(s), "characters"
	}
	switch {
	case a.enum != nil && !slices.Contains(a.enum, s):
		return Invalid(name, "%q is not one of: %s%s", Clip(s), strings.Join(a.enum, ", "), a.hint(s))
	case length < a.min:
		return Invalid(name, "has %d %s, the minimum is %d", length, unit, a.min)
	case a.max > 0 && length > a.max:
		return Invalid(name, "has %d %s, the maximum is %d", length, unit, a.max)
	case a.noNUL && strings.ContainsRune(s, 0):
		return Invalid(name, "contains a NUL byte")
	case a.pattern != nil && !a.pattern.MatchString(s):
		return Invalid(name, "%q does not match %s", Clip(s), a.pattern)
	}
	return nil
}

// integer decodes an integer, which may be written as 1000.0 or 1e3.
func (d decoder) integer(a *argument, name string, raw json.RawMessage, into reflect.Value) error {
	if d.converts() && strictjson.Kind(raw) == "a string" {
		raw = json.RawMessage(strings.TrimSpace(strictjson.Unquote(raw)))
	}
	switch {
	case a.noNull && strictjson.Kind(raw) == "null":
		return Invalid(name, "null is out of range: %d to %d", a.min, a.max)
	case strictjson.Kind(raw) != "a number":
		return Invalid(name, "must be an integer, got %s", strictjson.Kind(raw))
	}
	n, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || n != math.Trunc(n) {
		return Invalid(name, "%s is not an integer", safe.Line(string(raw), MaxShown))
	}
	if d.mode == Unchecked {
		n = max(min(n, float64(a.max)), float64(a.min-1))
	} else if n < float64(a.min) || n > float64(a.max) {
		return Invalid(name, "%s is out of range: %d to %d", safe.Line(string(raw), MaxShown), a.min, a.max)
	}
	into.SetInt(int64(n))
	return nil
}

func (d decoder) strings(a *argument, name string, raw json.RawMessage, into reflect.Value) error {
	if (d.converts() || a.single) && strictjson.Kind(raw) == "a string" {
		list := reflect.MakeSlice(into.Type(), 1, 1)
		into.Set(list)
		return d.string(a, name, raw, list.Index(0))
	}
	items, err := a.elements(name, raw, "strings")
	if err != nil {
		return err
	}
	list := reflect.MakeSlice(into.Type(), len(items), len(items))
	for n, item := range items {
		if err := d.string(a, fmt.Sprintf("%s[%d]", name, n), item, list.Index(n)); err != nil {
			return err
		}
	}
	into.Set(list)
	return nil
}

func (d decoder) objects(a *argument, name string, raw json.RawMessage, into reflect.Value) error {
	items, err := a.elements(name, raw, "objects")
	if err != nil {
		return err
	}
	list := reflect.MakeSlice(into.Type(), len(items), len(items))
	for n, item := range items {
		if err := d.object(item, fmt.Sprintf("%s[%d].", name, n), a.members, list.Index(n)); err != nil {
			return err
		}
	}
	into.Set(list)
	return nil
}

// elements returns the elements of an array of what.
func (a *argument) elements(name string, raw json.RawMessage, what string) ([]json.RawMessage, error) {
	if strictjson.Kind(raw) != "an array" {
		return nil, Invalid(name, "must be an array of %s, got %s", what, strictjson.Kind(raw))
	}
	items := strictjson.Elements(raw, a.items)
	if len(items) > a.items {
		return nil, Invalid(name, "must have at most %d entries", a.items)
	}
	return items, nil
}
