package rpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"corral/internal/jsonrpc"
	"corral/internal/strictjson"
)

// TestMessages checks the answers to valid and invalid messages, and that the connection stays usable.
func TestMessages(t *testing.T) {
	w := &world{run: shell}
	p := initialized(t, w.server())
	const parse, invalid = `{"id":null,"error":{"code":-32700,"message":"Parse error: `, `{"id":null,"error":{"code":-32600,"message":"Invalid request: `
	deep := strings.Repeat("[", 65) + strings.Repeat("]", 65)
	for _, tt := range []struct{ text, want string }{
		{`{`, parse},
		{`{"id":1`, parse},
		{`x`, parse},
		{`{"id":1}{"id":2}`, parse},
		{"{\"id\":\"\xff\"}", parse},
		{"{'id':1}", parse},
		{`{"id":1,"method":"x","params":` + strings.Repeat("[", 100_000), parse},
		{`[]`, invalid},
		{`[{"id":1,"method":"x"}]`, invalid},
		{`1`, invalid},
		{`null`, invalid},
		{`{"id":null,"method":"x"}`, invalid + "`id` must be"},
		{`{"id":1.5,"method":"x"}`, invalid + "`id` must be"},
		{`{"id":1e3,"method":"x"}`, invalid + "`id` must be"},
		{`{"id":true,"method":"x"}`, invalid + "`id` must be"},
		{`{"id":[],"method":"x"}`, invalid + "`id` must be"},
		{`{"id":9223372036854775808,"method":"x"}`, invalid + "`id` must be"},
		{`{"id":"` + strings.Repeat("x", maxID) + `","method":"x"}`, invalid + "`id` must be"},
		{`{"id":1,"id":2,"method":"x"}`, invalid + `duplicate key \"id\"`},
		{`{"id":1,"method":"x","params":{"a":{"b":1,"b":2}}}`, invalid + `params.a: duplicate key \"b\"`},
		{`{"id":1,"method":"x","params":` + deep + `}`, invalid},
		{string(errTooLongText), invalid + "the message is too long: at most 10485760 bytes are accepted"},
		{`{"id":9223372036854775807,"method":"nonsense"}`, `{"id":9223372036854775807,"error":{"code":-32600,"message":"Invalid request: unknown method`},
		{`{"id":-5,"method":"nonsense"}`, `{"id":-5,"error"`},
		{`{"id":"a\u0062\n","method":"nonsense"}`, `{"id":"a\u0062\n","error"`},
		{`{"id":"","method":"nonsense"}`, `{"id":"","error"`},
		{`{"id":7}`, "{\"id\":7,\"error\":{\"code\":-32600,\"message\":\"Invalid request: missing field `method`"},
		{`{"id":7,"method":5}`, "{\"id\":7,\"error\":{\"code\":-32600,\"message\":\"Invalid request: missing field `method`"},
		{`{"id":7,"method":"x","params":5}`, "{\"id\":7,\"error\":{\"code\":-32600,\"message\":\"Invalid request: `params` must be an object, got 5"},
		{`{"id":7,"method":"Initialize"}`, `unknown method`},
		{`{"id":7,"method":"command/exec","params":{"Command":["true"]}}`, "missing field `command`"},
		{`  { "params" : { "command" : [ "true" ] } , "method" : "command/exec" , "id" : 8 , "jsonrpc" : "1.0", "trace" : {} }  `, `{"id":8,"result":{"exitCode":0,`},
	} {
		before, _ := p.all()
		p.send(tt.text)
		n := 0
		p.until("answer to "+tt.text[:min(len(tt.text), 100)], func(arrival) bool { n++; return n > len(before) })
		if after, _ := p.all(); !strings.Contains(after[len(before)].raw, tt.want) {
			t.Errorf("%.100s: %.300s, want %s", tt.text, after[len(before)].raw, tt.want)
		}
	}
	// Notifications and answers are not answered.
	before, _ := p.all()
	for _, s := range []string{
		`{"method":"initialized"}`, `{"method":"nonsense","params":{}}`, `{"method":"command/exec","params":{"command":["true"]}}`, ``, ` `,
		`{"id":1,"result":{}}`, `{"id":1,"error":{"code":1,"message":""}}`, `{"result":1}`,
	} {
		p.send(s)
	}
	p.must("command/exec", `{"command":["true"]}`)
	if after, _ := p.all(); len(after) != len(before)+1 {
		t.Errorf("%+v", after[len(before):])
	}
	if len(w.reqs) != 2 {
		t.Errorf("%d requests reached the policy", len(w.reqs))
	}
}

// TestDuplicateID checks that the id of a pending request is refused, in any JSON spelling, and free after the answer.
func TestDuplicateID(t *testing.T) {
	w := &world{run: shell}
	p := initialized(t, w.server())
	for n, ids := range [][2]string{{`"one"`, `"\u006fne"`}, {`77`, `77`}} {
		name := fmt.Sprint("d", n)
		p.send(fmt.Sprintf(`{"id":%s,"method":"command/exec","params":{"command":["sleep"],"processId":%q}}`, ids[0], name))
		p.send(fmt.Sprintf(`{"id":%s,"method":"command/exec","params":{"command":["true"]}}`, ids[1]))
		m := p.until("refusal", func(m arrival) bool { return string(m.ID) == ids[1] })
		if m.Error == nil || m.Error.Code != jsonrpc.CodeRequest || !strings.HasSuffix(m.Error.Message, "is still pending: use another id") {
			t.Error(m.raw)
		}
		p.must("command/exec/terminate", fmt.Sprintf(`{"processId":%q}`, name))
		p.until("end", func(m arrival) bool { return string(m.ID) == ids[0] && m.Result != nil })
		p.send(fmt.Sprintf(`{"id":%s,"method":"command/exec","params":{"command":["exit","5"]}}`, ids[1]))
		p.until("answer", func(m arrival) bool {
			return string(m.ID) == ids[1] && bytes.Contains(m.Result, []byte(`"exitCode":5`))
		})
	}
	// A number and a string are different ids.
	p.ask("command/exec", `{"command":["sleep"],"processId":"d"}`)
	last := fmt.Sprint(p.id)
	p.send(fmt.Sprintf(`{"id":%q,"method":"command/exec/terminate","params":{"processId":"d"}}`, last))
	p.until("answer", func(m arrival) bool { return string(m.ID) == `"`+last+`"` && m.Error == nil })
}

// FuzzParse checks that every message parsed as a request is a JSON object with that id, that answers to it are valid
// JSON lines, and that reading its parameters does not panic.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"id":1,"method":"x","params":{"command":["a"],"env":{"A":null},"size":{"rows":1,"cols":2},"sandboxPolicy":{"type":"readOnly"}}}`,
		`{"id":"\u0061","method":"x"}`, `{"id":-0,"method":""}`, `[1]`, `null`, `{"method":"x","id":{}}`, `{"id":1,"result":null}`, "\xff", `{"id":1e1}`,
		`{"id":1,"method":"x","params":{"command":[[]],"tty":{},"timeoutMs":-1,"outputBytesCap":99999999999999999999,"size":[]}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, fault := parse(data)
		var v map[string]json.RawMessage
		isObject := json.Unmarshal(data, &v) == nil && v != nil && utf8.Valid(data)
		if !isObject && fault == nil {
			t.Fatalf("%q: accepted, but not a JSON object", data)
		}
		answer := dialect.Result(json.RawMessage("1"), strictjson.Encode(empty{}))
		if fault != nil {
			answer = dialect.Error(m.id, fault)
		} else if m.id != nil {
			answer = dialect.Result(m.id, strictjson.Encode(empty{}))
			if !bytes.Equal(m.id, v["id"]) {
				t.Errorf("%q: id %s, want %s", data, m.id, v["id"])
			}
		}
		if !json.Valid(answer) || bytes.ContainsAny(answer, "\n\r") {
			t.Errorf("%q: %q", data, answer)
		}
		if fault != nil {
			return
		}
		r := read(m.params)
		for key := range r.fields {
			one := &reader{fields: r.fields}
			one.boolean(key)
			one.integer(key)
			one.count(key)
			one.text(key, one.optional(key))
			one.stringArray(key, one.optional(key))
			one.environment(key)
			one.size(key, one.optional(key))
			(&reader{fields: map[string]json.RawMessage{"sandboxPolicy": r.fields[key]}}).policy()
			for _, fresh := range []func(*reader){
				func(r *reader) { r.integer(key) },
				func(r *reader) { r.count(key) },
				func(r *reader) { r.text(key, r.optional(key)) },
				func(r *reader) { r.stringArray(key, r.optional(key)) },
				func(r *reader) { r.environment(key) },
				func(r *reader) { r.size(key, r.optional(key)) },
			} {
				fresh(&reader{fields: r.fields})
			}
		}
	})
}

// FuzzValidText checks that validText returns UTF-8 and keeps all valid runes.
func FuzzValidText(f *testing.F) {
	f.Add([]byte("a\xf0\x9f\x98b\xe2\x82"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := validText(b)
		if !utf8.ValidString(got) {
			t.Errorf("%q: %q", b, got)
		}
		keep := func(s string) string { return strings.ReplaceAll(s, "\uFFFD", "") }
		if want := strings.ToValidUTF8(string(b), ""); keep(got) != keep(want) {
			t.Errorf("%q: %q", b, got)
		}
		for n := range b {
			s := &stream{kept: b[:n], cut: true}
			if utf8.Valid(b) && !strings.HasPrefix(string(b), validText(s.whole())) {
				t.Errorf("%q cut at %d: %q", b, n, validText(s.whole()))
			}
		}
	})
}
