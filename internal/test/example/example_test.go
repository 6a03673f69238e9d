package example

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// page is a page in which tildes stand for the fences.
func page(text string) string { return strings.ReplaceAll(text, "~~~", fence) }

const whole = `# tool

~~~python file greet.py
print("hello")
~~~

## Examples

### Valid: a first one

~~~json request
{"a": 1}
~~~

~~~text reply
1
~~~

~~~json reply
{"b": 1}
~~~

### Refused

~~~json request other
{"a": 2}
~~~

~~~json reply error
{"code": "DENIED"}
~~~

#### more of it

~~~text rpc
→ {}
~~~

## Notes
`

func TestRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tool.md")
	if err := os.WriteFile(file, []byte(page(whole)), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := Read(file, true)
	if err != nil {
		t.Fatal(err)
	}
	want := []Block{
		{Line: 3, Language: "python", Role: File, Name: "greet.py", Text: "print(\"hello\")\n"},
		{Line: 11, Kind: Valid, Language: "json", Role: Request, Text: "{\"a\": 1}\n"},
		{Line: 15, Kind: Valid, Language: "text", Role: Reply, Text: "1\n"},
		{Line: 19, Kind: Valid, Language: "json", Role: Reply, Text: "{\"b\": 1}\n"},
		{Line: 25, Kind: Refused, Language: "json", Role: Request, Name: "other", Text: "{\"a\": 2}\n"},
		{Line: 29, Kind: Refused, Language: "json", Role: Reply, Failed: true, Text: "{\"code\": \"DENIED\"}\n"},
		{Line: 35, Kind: Refused, Language: "text", Role: RPC, Text: "→ {}\n"},
	}
	if p.Name != "tool" || !slices.Equal(p.Blocks, want) {
		t.Errorf("%q: %+v", p.Name, p.Blocks)
	}
	calls := p.Calls()
	if len(calls) != 2 || len(calls[0].Replies) != 2 || calls[0].Replies[0] != want[3] || calls[1].Request != want[4] {
		t.Errorf("calls: %+v", calls)
	}
	if missing := p.Missing(); !slices.Equal(missing, []string{Timeout, Error}) {
		t.Errorf("missing: %q", missing)
	}
	if _, err := Read(file+".not", true); err == nil {
		t.Error("a page that is not there is read")
	}
}

// TestReadRefuses: pages with blocks that no test would run are refused.
func TestReadRefuses(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"~~~json\n{}\n~~~\n", "tool.md:1: block \"json\" has no role"},
		{"\n~~~\n{}\n~~~\n", "tool.md:2: block \"\" has no role"},
		{"~~~json example\n{}\n~~~\n", "unknown role example"},
		{"~~~text request\n{}\n~~~\n", "unknown role request"},
		{"~~~json request a b\n{}\n~~~\n", "unknown role request a b"},
		{"~~~json reply late\n{}\n~~~\n", "unknown role reply late"},
		{"~~~text file\n~~~\n", "unknown role file"},
		{"~~~json reply\n{}\n~~~\n", "tool.md:1: a reply without a request"},
		{"~~~json request\n{}\n~~~\n", "tool.md:1: a request without a reply"},
		{"~~~json request\n{}\n~~~\n~~~json request\n{}\n~~~\n~~~json reply\n{}\n~~~\n", "tool.md:1: a request without a reply"},
		{"~~~json request\n{}\n", "not closed"},
	} {
		if _, err := parse("tool", page(tt.text), true); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.text, err, tt.want)
		}
	}
	// Without strict, a page may have other blocks.
	p, err := parse("README", page("~~~console\n# no heading\n~~~\n~~~json request\n{}\n~~~\n~~~json reply\n{}\n~~~\n"), false)
	if err != nil || len(p.Blocks) != 2 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestJSON(t *testing.T) {
	for _, tt := range []struct {
		page, got, wrong string // wrong is part of the error; "" if it matches
	}{
		{`{"a": 1, "b": [true, null, "x"]}`, `{"b":[true,null,"x"],"a":1}`, ""},
		{`{"a": 1}`, `{"a":2}`, ".a: the page has 1, got 2"},
		{`{"a": 1}`, `{"a":1.0}`, ".a: the page has 1, got 1.0"},
		{`{"a": 1}`, `{"a":"1"}`, ".a"},
		{`{"a": 1}`, `{"a":null}`, ".a"},
		{`{"a": null}`, `{"a":1}`, ".a"},
		{`{"a": true}`, `{"a":false}`, ".a"},
		{`{"a": {}}`, `{"a":[]}`, ".a"},
		{`{"a": []}`, `{"a":{}}`, ".a"},
		{`{"a": 1}`, `{}`, ".a: missing in the result"},
		{`{}`, `{"a":1}`, ".a: missing on the page"},
		{`{}`, `{"ms":1}`, ""},
		{`{}`, `{"ms":"1"}`, ".ms: missing on the page"},
		{`{"a": 1, "…": 0}`, `{"a":1,"b":2}`, ""},
		{`{"a": {"…": 0}}`, `{"a":{"b":2}}`, ""},
		{`{"a": {"…": 0}}`, `{"a":{},"b":2}`, ".b"},
		{`{"a": [1]}`, `{"a":[1,2]}`, ".a: the page has 1 elements, got 2"},
		{`{"a": [1, "…"]}`, `{"a":[1,2,3]}`, ""},
		{`{"a": [1, "…"]}`, `{"a":[2,2,3]}`, ".a[0]"},
		{`{"a": [1, "…"]}`, `{"a":[]}`, ".a"},
		{`{"a": "b … e"}`, `{"a":"b c d e"}`, ""},
		{`{"a": "b … e"}`, `{"a":"b c d"}`, ".a"},
		{`{"ms": 12, "handle": "h-1"}`, `{"ms":9,"handle":"h-7"}`, ""},
		{`{"ms": 12}`, `{"ms":null}`, ""},
		{`{"ms": null}`, `{"ms":3}`, ""},
		{`{"ms": 12}`, `{"ms":"soon"}`, ".ms"},
		{`{"handle": "h-1"}`, `{"handle":null}`, ".handle"},
		{`{"handle": null}`, `{"handle":"h-1"}`, ".handle"},
		{`{"handle": "h-1"}`, `{"handle":""}`, ".handle"},
		{`{"list": [{"handle": "h-1"}, {"handle": "h-1"}]}`, `{"list":[{"handle":"x"},{"handle":"x"}]}`, ""},
		{`{"list": [{"handle": "h-1"}, {"handle": "h-1"}]}`, `{"list":[{"handle":"x"},{"handle":"y"}]}`, ".list[1].handle"},
		{`{"handle": "h…"}`, `{"handle":"h-7"}`, ""},
		{`{"handle": "h…"}`, `{"handle":"x"}`, ""},
		{`{"handle": "h…"}`, `{"handle":""}`, ".handle"},
		{`{`, `{}`, "the page's JSON"},
		{`{} {}`, `{}`, "the page's JSON: more data after"},
		{`{}`, ``, "the result's JSON"},
	} {
		err := NewMatcher("ms", "handle").JSON(tt.page, tt.got)
		if (err == nil) != (tt.wrong == "") || err != nil && !strings.Contains(err.Error(), tt.wrong) {
			t.Errorf("%s, %s: %v, want %q", tt.page, tt.got, err, tt.wrong)
		}
	}
}

// TestLearn: text learned from a reply is used in later requests and texts.
func TestLearn(t *testing.T) {
	m := NewMatcher("handle")
	m.Learn("/home/ada/app", "/tmp/x/app")
	m.Learn("/home/ada", "/tmp/y")
	if err := m.JSON(`{"handle": "h-1", "at": "/home/ada/app"}`, `{"handle":"h-77","at":"/tmp/x/app"}`); err != nil {
		t.Error(err)
	}
	if got, want := m.Actual("h-1 of /home/ada/app, h-2 of /home/ada/lib"), "h-77 of /tmp/x/app, h-2 of /tmp/y/lib"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, tt := range []struct {
		page, got string
		ok        bool
	}{
		{"see h-1\n", "see h-77", true},
		{"see h-1\n", "see h-1", false},
		{"a\n…\nz\n", "a\nb\nc\nz", true},
		{"a … b … a\n", "a b a", false},
		{"a … b … a\n", "a 1 b 2 a", true},
		{"…", "", true},
		{"…a", "b", false},
		{"  a\n", "a\n", false},
		{"at 2026-11-21T10:30:15Z", "at 2027-01-02T03:04:05.678Z", true},
		{"at 2026-11-21T10:30:15Z", "at noon", false},
		{"a\n\n", "a", true},
	} {
		if err := m.Text(tt.page, tt.got); (err == nil) != tt.ok {
			t.Errorf("%q, %q: %v", tt.page, tt.got, err)
		}
	}
}
