package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"corral/internal/nearest"
	"corral/internal/strictjson"
)

// maxUnknown is the maximum number of unknown keys that Unknown names.
const maxUnknown = 5

// Unknown returns a sentence for each key of a call that Decode ignored in mode Lenient; v is a value of the struct of the arguments.
func Unknown(raw json.RawMessage, v any) []string {
	if len(bytes.TrimSpace(raw)) == 0 || strictjson.Syntax(raw) != nil {
		return nil
	}
	d := decoder{mode: Lenient, ignored: new([]string)}
	t := reflect.TypeOf(v)
	// What else is wrong with the arguments is for Decode to report.
	_ = d.object(raw, "", argumentsOf(t), reflect.New(t).Elem())
	list := *d.ignored
	if more := len(list) - maxUnknown; more > 0 {
		list = append(list[:maxUnknown:maxUnknown], fmt.Sprintf("and %d more", more))
	}
	return list
}

// ignore notes an unknown key.
func (d decoder) ignore(prefix, key string, list []argument) {
	if d.ignored != nil {
		*d.ignored = append(*d.ignored, unknown(prefix, key, list).Message)
	}
}

// unknown returns the error for an unknown key, with the name of the argument that was probably meant.
func unknown(prefix, key string, list []argument) *Error {
	message := fmt.Sprintf("unknown argument %q", prefix+Clip(key))
	if near := suggest(key, list); near != "" {
		message += fmt.Sprintf(": did you mean %q?", prefix+near)
	}
	return &Error{Code: CodeInvalid, Message: message, Details: map[string]any{"argument": prefix + Clip(key)}}
}

// hint returns what may help a caller whose value s is not one of the choices, "" if nothing does.
func (a *argument) hint(s string) string {
	if a.named != nil {
		if hint := a.named.Hint(s); hint != "" {
			return ". " + hint
		}
	}
	if near := nearest.Of(strings.ToLower(s), a.enum); near != "" {
		return fmt.Sprintf(" (did you mean %q?)", near)
	}
	return ""
}
