package jsonrpc

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestWrite: the messages of both dialects.
func TestWrite(t *testing.T) {
	id := json.RawMessage(`"a"`)
	e := Errorf(CodeRequest, "no \x1b[2J%s", "\u202e")
	e.Data = []int{1}
	for _, row := range []struct{ got, want string }{
		{string(Dialect{Versioned: true}.Result(id, json.RawMessage(`{}`))), `{"jsonrpc":"2.0","id":"a","result":{}}`},
		{string(Dialect{}.Result(id, json.RawMessage(`{}`))), `{"id":"a","result":{}}`},
		{string(Dialect{Versioned: true}.Response(id)), `{"jsonrpc":"2.0","id":"a","result":`},
		{string(Dialect{}.Error(nil, e)), `{"id":null,"error":{"code":-32600,"message":"no \\x1b[2J\\u202e","data":[1]}}`},
		{string(Dialect{Versioned: true}.Notification("a/b", map[string]string{"c": "<"})), `{"jsonrpc":"2.0","method":"a/b","params":{"c":"<"}}`},
	} {
		if row.got != row.want {
			t.Errorf("%s, want %s", row.got, row.want)
		}
	}
}

// TestID: what is an id in both dialects, and which ids are equal.
func TestID(t *testing.T) {
	loose, strict := Dialect{MaxID: 10}, Dialect{MaxID: 10, Integers: true}
	for raw, want := range map[string][2]bool{
		`1`: {true, true}, `-1`: {true, true}, `1.5`: {true, false}, `1e9`: {true, false}, `"a"`: {true, true}, `12345678901`: {},
		`1e400`: {}, `-1e400`: {}, `1e308`: {true, false}, `-0`: {true, true}, `1e-400`: {true, false}, `0.1`: {true, false},
		`"123456789"`: {}, `null`: {}, `true`: {}, `{}`: {}, `[]`: {}, ``: {},
	} {
		if got := [2]bool{loose.ID(json.RawMessage(raw)) != nil, strict.ID(json.RawMessage(raw)) != nil}; got != want {
			t.Errorf("%s: %v, want %v", raw, got, want)
		}
	}
	if Key(json.RawMessage(`"a"`)) != Key(json.RawMessage(`"\u0061"`)) || Key(json.RawMessage(`1`)) == Key(json.RawMessage(`"1"`)) {
		t.Error("keys of ids")
	}
	if String(json.RawMessage(`"\u0061"`)) != "a" || String(json.RawMessage(`1`)) != "" || String(nil) != "" {
		t.Error("strings")
	}
}

// TestFindID: the id of a message that is no JSON is its only one at the outermost level.
func TestFindID(t *testing.T) {
	d := Dialect{MaxID: 10}
	for text, want := range map[string]string{
		`{"id":1,"x":,}`:                          "1",
		`{"params":{"id":5},"id" : "a" ,}`:        `"a"`,
		`{"x":"\"id\":3","id":7,]}`:               "",
		`{"id":1,"id":2,}`:                        "",
		`{"id":1,"ID":2,}`:                        "",
		`{"\u0069d":1,}`:                          "1",
		`{"id":{},}`:                              "",
		`{"id":` + strings.Repeat("1", 11) + `,}`: "",
		`{"id":1,`:                                "",
		`{"id":1,"`:                               "",
	} {
		if got := string(d.FindID([]byte(text))); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
