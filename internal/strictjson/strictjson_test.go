package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestCheck: each row is one thing that is wrong with a text, or nothing.
func TestCheck(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	keys := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"k%d":0,`, i)
		}
		return "{" + strings.TrimSuffix(b.String(), ",") + "}"
	}
	plain, folding := Checker{}, Checker{Fold: true}
	for _, tt := range []struct {
		checker    Checker
		text, want string
	}{
		{plain, ` {"a":[1,"x",null,{"b":true}],"c":{}} `, ""},
		{plain, `"x"`, ""},
		{plain, `-1.5e3`, ""},
		{plain, ``, "not JSON: unexpected end"},
		{plain, `{"a":1,}`, `not JSON: invalid character '}' at start of string (expecting '"') at byte 7`},
		{plain, "\"\xff\"", "not UTF-8"},
		{plain, `{"a":1,"b":{"x":1,"\u0078":2}}`, `b: duplicate key "x"`},
		{plain, `{"a":[{"x":1,"x":2}]}`, `a.[]: duplicate key "x"`},
		{plain, `{"a":1,"A":2}`, ""},
		{folding, `{"a":1,"A":2}`, `duplicate key "A"`},
		{folding, `{"ſ":1,"S":2}`, `duplicate key "S"`},
		{plain, `{"` + strings.Repeat("x", 200) + `":{"a":1,"a":2}}`, strings.Repeat("x", 100) + `…: duplicate key "a"`},
		{plain, deep(MaxDepth + 1), ""},
		{plain, deep(MaxDepth + 2), strings.Repeat("[].", MaxDepth) + "[]: nested deeper than 64 levels"},
		{plain, keys(MaxEntries), ""},
		{plain, keys(MaxEntries + 1), "more than 10000 keys"},
		{plain, "[" + strings.Repeat("0,", MaxEntries) + "0]", "more than 10000 entries"},
		{plain, `["\\\"","\\","a\\\\\"b]"]`, ""},
	} {
		got := ""
		if fault, aside := tt.checker.Check([]byte(tt.text)); aside != nil {
			t.Errorf("%.100s: aside %v", tt.text, aside)
		} else if fault != nil {
			got = fault.Error()
		}
		if got != tt.want {
			t.Errorf("%.100s: %q, want %q", tt.text, got, tt.want)
		}
	}
}

// TestAside: a fault within one value is told apart, and does not hide one of the rest.
func TestAside(t *testing.T) {
	c := Checker{Aside: []string{"params", "arguments"}}
	for _, tt := range []struct{ text, fault, aside string }{
		{`{"params":{"arguments":{"x":{"a":1,"a":2}}}}`, "", `x: duplicate key "a"`},
		{`{"params":{"arguments":{"a":1,"a":2},"b":[{"c":1,"c":2}]}}`, `params.b.[]: duplicate key "c"`, ""},
		{`{"params":{"arguments":{"a":1,"a":2},"arguments":1}}`, `params: duplicate key "arguments"`, ""},
		{`{"arguments":{"a":1,"a":2}}`, `arguments: duplicate key "a"`, ""},
		{`{"params":{"x":{"arguments":{"a":1,"a":2}}}}`, `params.x.arguments: duplicate key "a"`, ""},
		{`{"params":{"arguments":1}}`, "", ""},
	} {
		fault, aside := c.Check([]byte(tt.text))
		if worded(fault) != tt.fault || fault == nil && worded(aside) != tt.aside {
			t.Errorf("%s: %v, aside %v", tt.text, fault, aside)
		}
	}
}

func worded(f *Fault) string {
	if f == nil {
		return ""
	}
	return f.Error()
}

// TestEntries: what is in an object is found as it was written.
func TestEntries(t *testing.T) {
	got := Entries([]byte(` { "a" : [1, {"b":"}"} ] , "c\u0064":"\\\"," ,"e":-1.5e3,"f":{},"g":true } `))
	want := []Entry{
		{"a", json.RawMessage(`[1, {"b":"}"} ]`)},
		{"cd", json.RawMessage(`"\\\","`)},
		{"e", json.RawMessage(`-1.5e3`)},
		{"f", json.RawMessage(`{}`)},
		{"g", json.RawMessage(`true`)},
	}
	if len(got) != len(want) {
		t.Fatalf("%s", got)
	}
	for n := range want {
		if got[n].Key != want[n].Key || !bytes.Equal(got[n].Value, want[n].Value) {
			t.Errorf("%d: %s = %s, want %s", n, got[n].Key, got[n].Value, want[n].Value)
		}
	}
	if Entries([]byte(`[]`)) != nil || Entries([]byte(`{}`)) == nil {
		t.Error("an object without keys is an object, and an array is none")
	}
}

// TestElements: what is in an array is found as it was written, up to a limit and one.
func TestElements(t *testing.T) {
	if got := Elements([]byte(` [ 1 , "a,]" , [ ] ] `), 3); fmt.Sprintf("%s", got) != `[1 "a,]" [ ]]` {
		t.Errorf("%s", got)
	}
	if got := Elements([]byte(`[1,2,3,4]`), 2); len(got) != 3 {
		t.Errorf("%s", got)
	}
	if Elements([]byte(`{}`), 1) != nil || Elements([]byte(`[]`), 1) == nil {
		t.Error("an array without elements is an array, and an object is none")
	}
}

// TestKeySet: small and large sets know their keys.
func TestKeySet(t *testing.T) {
	s := keySet{fold: true}
	for n := range 100 {
		key := strings.Repeat("k", n+1)
		if !s.add(quote(key)) || s.add(quote(key)) || s.add(quote(strings.ToUpper(key))) {
			t.Fatalf("key %d", n)
		}
	}
	for _, pair := range [][2]string{{"ſ", "S"}, {"\u212a", "k1"}} {
		s := keySet{fold: true}
		s.add(quote(pair[0]))
		if got := s.add(quote(pair[1])); got == strings.EqualFold(pair[0], pair[1]) {
			t.Errorf("%q and %q: new %v", pair[0], pair[1], got)
		}
	}
}

func quote(key string) []byte { return []byte(`"` + key + `"`) }

// FuzzUnquote: strings are decoded as encoding/json decodes them.
func FuzzUnquote(f *testing.F) {
	for _, seed := range []string{`"a"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ude00\ud83d\n"`, `"\ud800\u0041"`, `"\u0000\/\b"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var want string
		if Syntax(data) != nil || json.Unmarshal(data, &want) != nil || data[0] != '"' || data[len(data)-1] != '"' {
			return
		}
		if got := Unquote(data); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	})
}

// TestMarshal: one line, without escapes for HTML.
func TestMarshal(t *testing.T) {
	if got := string(Encode(map[string]string{"a": "<\n"})); got != `{"a":"<\n"}` {
		t.Error(got)
	}
	if got := string(Encode(func() {})); got != "null" {
		t.Error(got)
	}
}

// FuzzCheck: what nothing is wrong with has no key twice for the standard decoder, which is asked token by token; and its
// parts are the decoder's.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{`{"a":1,"b":{"a":2}}`, `{"a":1,"A":2}`, `[[[{"x":"\"\\"}]]]`, `"x"`, `12`, ` null `, `{"a":[1,2,{}]}`, `{"a\\\"":"\\\\\""}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fault, _ := Checker{}.Check(data)
		if (fault != nil && fault.Syntax) == (json.Valid(data) && bytes.Equal(bytes.ToValidUTF8(data, nil), data)) {
			t.Fatalf("%v: %q", fault, data)
		}
		if fault != nil {
			return
		}
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		if err := once(d); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(data, &object) == nil && object != nil {
			got := Entries(data)
			if len(got) != len(object) {
				t.Fatalf("%d entries, want %d: %s", len(got), len(object), data)
			}
			for _, e := range got {
				if !bytes.Equal(e.Value, object[e.Key]) {
					t.Fatalf("%q: %s, want %s", e.Key, e.Value, object[e.Key])
				}
			}
		}
		var array []json.RawMessage
		if json.Unmarshal(data, &array) == nil && array != nil {
			for n, e := range Elements(data, MaxEntries) {
				if !bytes.Equal(e, array[n]) {
					t.Fatalf("%d: %s, want %s", n, e, array[n])
				}
			}
		}
	})
}

// once reads a value, and reports a duplicate key.
func once(d *json.Decoder) error {
	token, err := d.Token()
	if err != nil || token != json.Delim('{') && token != json.Delim('[') {
		return err
	}
	seen := map[string]bool{}
	for d.More() {
		if token == json.Delim('{') {
			key, err := d.Token()
			if err != nil {
				return err
			}
			if seen[key.(string)] {
				return errors.New("duplicate key")
			}
			seen[key.(string)] = true
		}
		if err := once(d); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}
