package tool

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"corral/internal/strictjson"
)

// sample has an argument of each kind.
type sample struct {
	ID    string   `arg:"repoId,required,min=1,max=5"`
	Text  string   `arg:"code,max=8,bytes"`
	Word  string   `arg:"word" enum:"one,two"`
	Count int      `arg:"timeoutMs,min=10,max=100"`
	On    bool     `arg:"persist" default:"true"`
	List  []string `arg:"args,items=2,max=3,nonul"`
	Range *span    `arg:"lineRange"`
}

type span struct {
	Start int `arg:"startLine,required,min=1,max=9"`
}

func TestDecode(t *testing.T) {
	for _, tt := range []struct {
		raw  string
		want sample
	}{
		{`{"repoId":"r"}`, sample{ID: "r", On: true}},
		{`{"repoId":"äöüäö","code":"äöüä"}`, sample{ID: "äöüäö", Text: "äöüä", On: true}},
		{`{"repoId":"r","word":"two","timeoutMs":10,"persist":false}`, sample{ID: "r", Word: "two", Count: 10}},
		{`{"repoId":"r","timeoutMs":1e2}`, sample{ID: "r", Count: 100, On: true}},
		{`{"repoId":"r","timeoutMs":20.0}`, sample{ID: "r", Count: 20, On: true}},
		{`{"repoId":"r","args":[]}`, sample{ID: "r", List: []string{}, On: true}},
		{`{"repoId":"r","args":["","abc"]}`, sample{ID: "r", List: []string{"", "abc"}, On: true}},
		{`{"repoId":"r","code":"\ud83d\ude00"}`, sample{ID: "r", Text: "😀", On: true}},
		{`{"repoId":"r","code":"\\ud83d"}`, sample{ID: "r", Text: `\ud83d`, On: true}},
		{`{"repoId":"r","code":"\u0000"}`, sample{ID: "r", Text: "\x00", On: true}},
		{`{"repoId":"r","lineRange":{"startLine":2}}`, sample{ID: "r", Range: &span{2}, On: true}},
	} {
		var got sample
		if err := Decode(json.RawMessage(tt.raw), &got, Strict); err != nil || !reflect.DeepEqual(got, tt.want) {
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
		{`{"repoId":"r"`, "", "not JSON: unexpected EOF at byte 13"},
		{`{"repoId":"r",}`, "", "at byte 14"},
		{"{\"repoId\":\"\xff\"}", "", "not UTF-8"},
		{`null`, "", "must be an object, got null"},
		{`{"repoId":"r","extra":1}`, "extra", `unknown argument "extra"`},
		{`{"repoId":"r","timeout":1}`, "timeout", `unknown argument "timeout": did you mean "timeoutMs"?`},
		{`{"repo":"r"}`, "repo", `unknown argument "repo": did you mean "repoId"?`},
		{`{"repoid":"r"}`, "repoid", `unknown argument "repoid": did you mean "repoId"?`},
		{`{"repoId":"r","cdoe":"x"}`, "cdoe", `unknown argument "cdoe": did you mean "code"?`},
		{`{"repoId":"r","xyz":"x"}`, "xyz", `unknown argument "xyz"`},
		{`{"repoId":"r","` + long + `":1}`, long[:MaxShown] + "…", "unknown argument"},
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
		err := Decode(json.RawMessage(tt.raw), &s, Strict)
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
	type bounded struct {
		ID    string   `arg:"repoId,required,min=1,max=5" about:"x"`
		Text  string   `arg:"code,max=8KiB,bytes"`
		Word  string   `arg:"word" enum:"one,two" default:"one"`
		Count int      `arg:"timeoutMs,min=10,max=100"`
		Usual *int     `arg:"usual,max=9" default:"5"`
		On    bool     `arg:"persist" default:"true"`
		List  []string `arg:"args,items=2,max=3" pattern:"^a"`
		Range *span    `arg:"lineRange"`
		All   []span   `arg:"all,items=2"`
	}
	const spans = `{"type":"object","properties":{"startLine":{"type":"integer","minimum":1,"maximum":9}},"required":["startLine"],"additionalProperties":false}`
	got := string(InputSchema(bounded{}, Strict, nil))
	want := `{"type":"object","properties":{` +
		`"repoId":{"type":"string","description":"x","minLength":1,"maxLength":5},` +
		`"code":{"type":"string","maxLength":8192},` +
		`"word":{"type":"string","enum":["one","two"],"default":"one"},` +
		`"timeoutMs":{"type":"integer","minimum":10,"maximum":100},` +
		`"usual":{"type":"integer","default":5,"minimum":0,"maximum":9},` +
		`"persist":{"type":"boolean","default":true},` +
		`"args":{"type":"array","items":{"type":"string","maxLength":3,"pattern":"^a"},"maxItems":2},` +
		`"lineRange":` + spans + `,"all":{"type":"array","items":` + spans + `,"maxItems":2}},` +
		`"required":["repoId"],"additionalProperties":false}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// loose has the arguments of a lenient tool.
type loose struct {
	N    int      `arg:"n,min=1,max=100,nonull"`
	M    int      `arg:"m,min=0,max=9"`
	On   bool     `arg:"on"`
	List []string `arg:"list,items=2,max=5"`
	Text string   `arg:"text,max=5,required"`
}

// TestDecodeLenient: coercions, and values that are still rejected.
func TestDecodeLenient(t *testing.T) {
	for _, tt := range []struct {
		raw  string
		want loose
		fail string
	}{
		{`{"text":"a","unknown":{"x":1},"Text":"b"}`, loose{Text: "a"}, ""},
		{`{"text":"a","n":"42","on":"true","list":"one"}`, loose{Text: "a", N: 42, On: true, List: []string{"one"}}, ""},
		{`{"text":"a","n":" 4e1 ","on":" true ","list":["x","y"]}`, loose{Text: "a", N: 40, On: true, List: []string{"x", "y"}}, ""},
		{`{"text":"a","m":null,"on":null,"list":null}`, loose{Text: "a"}, ""},
		{`{"text":"a","n":null}`, loose{}, "n: null is out of range: 1 to 100"},
		{`{"text":null}`, loose{}, "text: is required"},
		{``, loose{}, "text: is required"},
		{`{"text":"a","n":"0"}`, loose{}, "n: 0 is out of range: 1 to 100"},
		{`{"text":"a","n":"true"}`, loose{}, "n: must be an integer, got a boolean"},
		{`{"text":"a","m":"1"}`, loose{Text: "a", M: 1}, ""},
		{`{"text":"a","on":"yes"}`, loose{}, "on: must be true or false, got a string"},
		{`{"text":"a","on":1}`, loose{}, "on: must be true or false, got a number"},
		{`{"text":"a","list":"too long"}`, loose{}, "list: has 8 characters, the maximum is 5"},
		{`{"text":"a","list":7}`, loose{}, "list: must be an array of strings, got a number"},
		{`{"text":["a"]}`, loose{}, "text: must be a string, got an array"},
		{`{"text":"\ud800"}`, loose{}, "text: contains an unpaired surrogate escape, which is not valid text"},
		{`{"text":"a"`, loose{}, "not JSON: unexpected EOF at byte 11"},
	} {
		var got loose
		err := Decode(json.RawMessage(tt.raw), &got, Lenient)
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

// TestDecodeUnchecked: bounds are the tool's to check, types are not.
func TestDecodeUnchecked(t *testing.T) {
	type unchecked struct {
		Text  string   `arg:"text,max=2,nonul"`
		Count *int     `arg:"n,min=1,max=100" default:"5"`
		List  []string `arg:"list,items=2,max=2"`
	}
	for raw, want := range map[string]string{
		`{"text":null,"n":null,"list":null}`: `{"Text":"","Count":null,"List":null}`,
		`{"text":"long","list":["long"]}`:    `{"Text":"long","Count":null,"List":["long"]}`,
		`{"n":-1e300}`:                       `{"Text":"","Count":0,"List":null}`,
		`{"n":1e300}`:                        `{"Text":"","Count":100,"List":null}`,
		`{"n":1.5}`:                          "n: 1.5 is not an integer",
		`{"n":"5"}`:                          "n: must be an integer, got a string",
		`{"list":["","",""]}`:                "list: must have at most 2 entries",
		`{"x":1}`:                            `unknown argument "x"`,
	} {
		var v unchecked
		got := ""
		if err := Decode(json.RawMessage(raw), &v, Unchecked); err != nil {
			got = err.Error()
		} else {
			got = string(strictjson.Encode(v))
		}
		if got != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
}

// TestReplySchema: the schema of a struct describes its encoding.
func TestReplySchema(t *testing.T) {
	type inner struct {
		At time.Time `json:"at"`
	}
	type reply struct {
		inner
		Word   string         `json:"word" enum:"a,b"`
		Maybe  *int           `json:"maybe"`
		Absent *int           `json:"absent,omitempty"`
		List   []*inner       `json:"list"`
		Map    map[string]int `json:"map"`
		_      int            // has no name in JSON
	}
	got := string(ReplySchema[reply]())
	want := `{"type":"object","properties":{"at":{"type":"string"},"word":{"type":"string","enum":["a","b"]},` +
		`"maybe":{"type":["integer","null"]},"absent":{"type":"integer"},` +
		`"list":{"type":"array","items":{"type":"object","properties":{"at":{"type":"string"}}}},"map":{"type":"object"},` +
		`"message":{"type":"string"},` +
		`"code":{"type":"string"},` +
		`"details":{"type":"object"}}}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
