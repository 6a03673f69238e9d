package mcp

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// sample is an argument table with a field of each kind.
type sample struct {
	id, text, word string
	count          int
	on, ranged     bool
	list           []string
	start          int
}

func (s *sample) fields() []field {
	return []field{
		{name: "repoId", into: &s.id, required: true, min: 1, max: 5},
		{name: "code", into: &s.text, max: 8, bytes: true},
		{name: "word", into: &s.word, enum: []string{"one", "two"}},
		{name: "timeoutMs", into: &s.count, min: 10, max: 100},
		{name: "persist", into: &s.on},
		{name: "args", into: &s.list, items: 2, max: 3, noNUL: true},
		{name: "lineRange", into: &s.ranged, fields: []field{
			{name: "startLine", into: &s.start, required: true, min: 1, max: 9},
		}},
	}
}

func TestDecode(t *testing.T) {
	for _, tt := range []struct {
		raw  string
		want sample
	}{
		{`{"repoId":"r"}`, sample{id: "r", on: true}},
		{`{"repoId":"äöüäö","code":"äöüä"}`, sample{id: "äöüäö", text: "äöüä", on: true}},
		{`{"repoId":"r","word":"two","timeoutMs":10,"persist":false}`, sample{id: "r", word: "two", count: 10}},
		{`{"repoId":"r","timeoutMs":1e2}`, sample{id: "r", count: 100, on: true}},
		{`{"repoId":"r","timeoutMs":20.0}`, sample{id: "r", count: 20, on: true}},
		{`{"repoId":"r","args":[]}`, sample{id: "r", list: []string{}, on: true}},
		{`{"repoId":"r","args":["","abc"]}`, sample{id: "r", list: []string{"", "abc"}, on: true}},
		{`{"repoId":"r","code":"\ud83d\ude00"}`, sample{id: "r", text: "😀", on: true}},
		{`{"repoId":"r","code":"\\ud83d"}`, sample{id: "r", text: `\ud83d`, on: true}},
		{`{"repoId":"r","code":"\u0000"}`, sample{id: "r", text: "\x00", on: true}},
		{`{"repoId":"r","lineRange":{"startLine":2}}`, sample{id: "r", ranged: true, start: 2, on: true}},
	} {
		got := sample{on: true}
		if err := decodeArguments(json.RawMessage(tt.raw), got.fields()); err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, %v; want %+v", tt.raw, got, err, tt.want)
		}
	}
}

func TestDecodeRejects(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for _, tt := range []struct{ raw, argument, want string }{
		{``, "repoId", "repoId: is required"},
		{`{}`, "repoId", "repoId: is required"},
		{`[]`, "", "must be an object, got an array"},
		{`{"repoId":"r"`, "", "not valid JSON"},
		{`null`, "", "must be an object, got null"},
		{`{"repoId":"r","extra":1}`, "extra", `unknown argument "extra"`},
		{`{"repoId":"r","timeout":1}`, "timeout", `unknown argument "timeout": did you mean "timeoutMs"?`},
		{`{"repo":"r"}`, "repo", `unknown argument "repo": did you mean "repoId"?`},
		{`{"repoid":"r"}`, "repoid", `unknown argument "repoid": did you mean "repoId"?`},
		{`{"repoId":"r","cdoe":"x"}`, "cdoe", `unknown argument "cdoe": did you mean "code"?`},
		{`{"repoId":"r","xyz":"x"}`, "xyz", `unknown argument "xyz"`},
		{`{"repoId":"r","` + long + `":1}`, long[:maxShown] + "…", "unknown argument"},
		{`{"repoId":"r","repoId":"r"}`, "repoId", "repoId: duplicate key"},
		{`{"repoId":null}`, "repoId", "repoId: must be a string, got null"},
		{`{"repoId":1}`, "repoId", "repoId: must be a string, got a number"},
		{`{"repoId":""}`, "repoId", "repoId: has 0 characters, the minimum is 1"},
		{`{"repoId":"123456"}`, "repoId", "repoId: has 6 characters, the maximum is 5"},
		{`{"repoId":"r","code":"ääääx"}`, "code", "code: has 9 bytes, the maximum is 8"},
		{`{"repoId":"r","code":"\ud83d"}`, "code", "code: contains an unpaired surrogate escape"},
		{`{"repoId":"r","code":"\ude00\ud83d"}`, "code", "code: contains an unpaired surrogate escape"},
		{`{"repoId":"r","code":"\ud83d\n"}`, "code", "code: contains an unpaired surrogate escape"},
		{`{"repoId":"r","word":"three"}`, "word", `word: "three" is not one of: one, two`},
		{`{"repoId":"r","word":"One"}`, "word", `word: "One" is not one of`},
		{`{"repoId":"r","timeoutMs":9}`, "timeoutMs", "timeoutMs: 9 is out of range: 10 to 100"},
		{`{"repoId":"r","timeoutMs":101}`, "timeoutMs", "out of range"},
		{`{"repoId":"r","timeoutMs":1e99}`, "timeoutMs", "out of range"},
		{`{"repoId":"r","timeoutMs":1e999}`, "timeoutMs", "is not an integer"},
		{`{"repoId":"r","timeoutMs":10.5}`, "timeoutMs", "10.5 is not an integer"},
		{`{"repoId":"r","timeoutMs":"50"}`, "timeoutMs", "must be an integer, got a string"},
		{`{"repoId":"r","persist":"true"}`, "persist", "must be true or false, got a string"},
		{`{"repoId":"r","persist":null}`, "persist", "must be true or false, got null"},
		{`{"repoId":"r","args":"a"}`, "args", "must be an array of strings, got a string"},
		{`{"repoId":"r","args":["a","b","c"]}`, "args", "must have at most 2 entries"},
		{`{"repoId":"r","args":["a",1]}`, "args[1]", "args[1]: must be a string, got a number"},
		{`{"repoId":"r","args":["a\u0000"]}`, "args[0]", "args[0]: contains a NUL byte"},
		{`{"repoId":"r","lineRange":[]}`, "lineRange", "lineRange: must be an object, got an array"},
		{`{"repoId":"r","lineRange":{}}`, "lineRange.startLine", "lineRange.startLine: is required"},
		{`{"repoId":"r","lineRange":{"startLine":0}}`, "lineRange.startLine", "out of range: 1 to 9"},
		{`{"repoId":"r","lineRange":{"start":1}}`, "lineRange.start", `did you mean "lineRange.startLine"?`},
	} {
		var s sample
		err := decodeArguments(json.RawMessage(tt.raw), s.fields())
		var e *Error
		if !errors.As(err, &e) || e.Code != CodeInvalid || !strings.Contains(e.Message, tt.want) {
			t.Errorf("%.80s: %v, want %q", tt.raw, err, tt.want)
			continue
		}
		if got, _ := e.Details["argument"].(string); got != tt.argument {
			t.Errorf("%.80s: argument %q, want %q", tt.raw, got, tt.argument)
		}
	}
}

// TestInputSchema: the schema of a table describes what decoding accepts.
func TestInputSchema(t *testing.T) {
	s := sample{on: true, word: "one"}
	got := string(inputSchema(s.fields()))
	want := `{"type":"object","properties":{` +
		`"repoId":{"type":"string","minLength":1,"maxLength":5},` +
		`"code":{"type":"string","maxLength":8},` +
		`"word":{"type":"string","enum":["one","two"],"default":"one"},` +
		`"timeoutMs":{"type":"integer","minimum":10,"maximum":100},` +
		`"persist":{"type":"boolean","default":true},` +
		`"args":{"type":"array","items":{"type":"string","maxLength":3},"maxItems":2},` +
		`"lineRange":{"type":"object","properties":{"startLine":{"type":"integer","minimum":1,"maximum":9}},` +
		`"required":["startLine"],"additionalProperties":false}},` +
		`"required":["repoId"],"additionalProperties":false}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// loose is the argument table of a lenient tool.
type loose struct {
	n, m int
	on   bool
	list []string
	text string
}

func (l *loose) fields() []field {
	return []field{
		{name: "n", into: &l.n, min: 1, max: 100, coerce: true, bare: true},
		{name: "m", into: &l.m, min: 0, max: 9},
		{name: "on", into: &l.on, coerce: true},
		{name: "list", into: &l.list, items: 2, max: 5, coerce: true},
		{name: "text", into: &l.text, max: 5, required: true},
	}
}

// TestDecodeLenient: coercions, and values that are still rejected.
func TestDecodeLenient(t *testing.T) {
	for _, tt := range []struct {
		raw  string
		want loose
		fail string
	}{
		{`{"text":"a","unknown":{"x":1},"Text":"b"}`, loose{text: "a"}, ""},
		{`{"text":"a","n":"42","on":"true","list":"one"}`, loose{text: "a", n: 42, on: true, list: []string{"one"}}, ""},
		{`{"text":"a","n":" 4e1 ","on":" true ","list":["x","y"]}`, loose{text: "a", n: 40, on: true, list: []string{"x", "y"}}, ""},
		{`{"text":"a","m":null,"on":null,"list":null}`, loose{text: "a"}, ""},
		{`{"text":"a","n":null}`, loose{}, "n: null is out of range: 1 to 100"},
		{`{"text":null}`, loose{}, "text: is required"},
		{``, loose{}, "text: is required"},
		{`{"text":"a","n":"0"}`, loose{}, "n: 0 is out of range: 1 to 100"},
		{`{"text":"a","n":"true"}`, loose{}, "n: must be an integer, got a boolean"},
		{`{"text":"a","m":"1"}`, loose{}, "m: must be an integer, got a string"},
		{`{"text":"a","on":"yes"}`, loose{}, "on: must be true or false, got a string"},
		{`{"text":"a","on":1}`, loose{}, "on: must be true or false, got a number"},
		{`{"text":"a","list":"too long"}`, loose{}, "list: has 8 characters, the maximum is 5"},
		{`{"text":"a","list":7}`, loose{}, "list: must be an array of strings, got a number"},
		{`{"text":["a"]}`, loose{}, "text: must be a string, got an array"},
		{`{"text":"\ud800"}`, loose{}, "text: contains an unpaired surrogate escape, which is not valid text"},
		{`{"text":"a"`, loose{}, "not valid JSON"},
	} {
		var got loose
		err := decodeLenient(json.RawMessage(tt.raw), got.fields())
		if tt.fail != "" {
			if err == nil || err.Error() != tt.fail {
				t.Errorf("%s: %v", tt.raw, err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, %v", tt.raw, got, err)
		}
	}
}
