package server

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"corral/internal/strictjson"
	"corral/internal/test/sandboxtest"
	"corral/mcp/tool"
)

// TestProtocol: requests over stdio with the expected responses.
func TestProtocol(t *testing.T) {
	rows := []struct {
		name, send string
		want       []string // all must be in the response
		code       int      // of a JSON-RPC error
	}{
		{name: "initialize 2025-06-18", send: initialize("2025-06-18"), want: []string{`"protocolVersion":"2025-06-18"`, `"name":"corral"`, `"version":"1.2.3"`, `"instructions":"for tests"`}},
		{name: "initialize 2025-11-25", send: initialize("2025-11-25"), want: []string{`"protocolVersion":"2025-11-25"`, `"tools":{}`}},
		{name: "initialize 2026-07-28 ends at the last version that has it", send: initialize("2026-07-28"), want: []string{`"protocolVersion":"2025-11-25"`}},
		{name: "initialize of an unknown version", send: initialize("1999-01-01"), want: []string{`"protocolVersion":"2025-11-25"`}},
		{name: "ping", send: `{"jsonrpc":"2.0","id":"p","method":"ping"}`, want: []string{`"id":"p"`, `"result":{}`}},
		{name: "ping of 2026-07-28", send: `{"jsonrpc":"2.0","id":1,"method":"ping","params":{` + modernMeta + `}}`, code: -32601},
		{name: "discover", send: `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + modernMeta + `}}`, want: []string{`"2026-07-28"`, `"2025-06-18"`, `"resultType":"complete"`}},
		{name: "list of 2026-07-28", send: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}`, want: []string{`"name":"echo"`, `"ttlMs":60000`, `"cacheScope":"private"`, `"resultType":"complete"`}},
		{name: "call of 2026-07-28 without initialize", send: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo",` + modernMeta + `}}`, want: []string{`"resultType":"complete"`, `"structuredContent":{`, `io.modelcontextprotocol/serverInfo`}},
		{name: "2026-07-28 without capabilities", send: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, code: -32602},
		{name: "a version to come", send: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2027-01-01","io.modelcontextprotocol/clientCapabilities":{}}}}`, code: -32022, want: []string{`"2026-07-28"`}},
		{name: "initialize of 2026-07-28", send: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{` + modernMeta + `}}`, code: -32601},
		{name: "listen for nothing", send: `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{},` + modernMeta + `}}`, want: []string{`notifications/subscriptions/acknowledged`}},
		{name: "unknown method", send: `{"jsonrpc":"2.0","id":1,"method":"no/such"}`, code: -32601},
		{name: "resources are not declared", send: `{"jsonrpc":"2.0","id":1,"method":"resources/list"}`, code: -32601},
		{name: "unknown tool", send: toCall("1", "nope", "{}"), code: -32602, want: []string{`"message":"unknown tool \"nope\""`}},
		{name: "dotted name", send: toCall("1", "sdl.echo", "{}"), want: []string{`"structuredContent"`}},
		{name: "arguments arrive as they were written", send: toCall("1", "echo", `{"n":12345678901234567890.50, "code":"\u00e9"}`), want: []string{`12345678901234567890.50`}},
		{name: "no arguments", send: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`, want: []string{`"arguments":{}`}},
		{name: "null arguments", send: toCall("1", "echo", "null"), want: []string{`"isError":true`, `"structuredContent":{"code":"INVALID_REQUEST"`}},
		{name: "array arguments", send: toCall("1", "echo", `[{"a":1,"a":2}]`), want: []string{`"isError":true`, `"structuredContent":{"code":"INVALID_REQUEST"`}},
		{name: "no name", send: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{}}}`, code: -32602},
		{name: "name is not a string", send: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}`, code: -32602},
		{name: "tool panics", send: toCall("1", "panics", "{}"), want: []string{`"isError":true`, `"code":"INTERNAL"`}},
		{name: "tool fails", send: toCall("1", "fails", "{}"), want: []string{`"isError":true`, `"code":"INTERNAL"`, "a cable fell out"}},
		{name: "tool refuses", send: toCall("1", "denies", "{}"), want: []string{`"isError":true`, `"structuredContent":{"code":"DENIED","message":"no","details":{"why":"rule"}}`, `"text":"{\"code\":\"DENIED\"`}},
		{name: "result is not an object", send: toCall("1", "array", "{}"), want: []string{`"isError":true`, `"code":"INTERNAL"`}},
		{name: "a result of nothing", send: toCall("1", "empty", "{}"), want: []string{`"result":{"content":[{"type":"text","text":""}]}`}},
		{name: "a result with an image", send: toCall("1", "image", "{}"), want: []string{`"result":{"content":[{"type":"text","text":"an image"},{"type":"image","data":"iVBORw==","mimeType":"image/png"}]}`}},
		{name: "a result of text", send: toCall("1", "text", "{}"), want: []string{`"result":{"content":[{"type":"text","text":"words"}]}`}},
		{name: "a result that cannot be written", send: toCall("1", "explodes", "{}"), code: -32603, want: []string{`"id":1`}},
		{name: "not JSON", send: `{"jsonrpc":`, code: -32700, want: []string{`"id":null`}},
		{name: "two texts on a line", send: `{"jsonrpc":"2.0","id":1,"method":"ping"} {}`, code: -32700},
		{name: "not UTF-8", send: "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", code: -32700, want: []string{`"id":1`}},
		{name: "not UTF-8 in the id", send: "{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"x\"}", code: -32700, want: []string{`"id":null`}},
		{name: "not UTF-8, two ids", send: "{\"id\":1,\"method\":\"\xff\",\"\\u0069d\":2}", code: -32700, want: []string{`"id":null`}},
		{name: "not UTF-8, an id that is an object", send: "{\"id\":{},\"method\":\"\xff\",\"id\":2}", code: -32700, want: []string{`"id":null`}},
		{name: "not UTF-8, ID", send: "{\"ID\":1,\"method\":\"\xff\"}", code: -32700, want: []string{`"id":null`}},
		{name: "not JSON behind the id", send: `{"jsonrpc":"2.0","id":"a","method":"x",}`, code: -32700, want: []string{`"id":"a"`}},
		{name: "a quote that is not escaped", send: `{"id":1,"method":"x","code":"","id":2}`[:34], code: -32700, want: []string{`"id":null`}},
		{name: "a byte order mark", send: "\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"ping"}`, code: -32700},
		{name: "no object", send: `"ping"`, code: -32600},
		{name: "no jsonrpc", send: `{"id":1,"method":"ping"}`, code: -32600, want: []string{`"id":1`}},
		{name: "jsonrpc 1.0", send: `{"jsonrpc":"1.0","id":1,"method":"ping"}`, code: -32600},
		{name: "id null", send: `{"jsonrpc":"2.0","id":null,"method":"ping"}`, code: -32600, want: []string{`"id":null`}},
		{name: "id object", send: `{"jsonrpc":"2.0","id":{},"method":"ping"}`, code: -32600},
		{name: "id too long", send: `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", maxID) + `","method":"ping"}`, code: -32600},
		{name: "a large number as id", send: `{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, want: []string{`"id":9007199254740993`}},
		{name: "a fraction as id", send: `{"jsonrpc":"2.0","id":-1.50,"method":"ping"}`, want: []string{`"id":-1.50`}},
		{name: "zero with a sign as id", send: `{"jsonrpc":"2.0","id":-0,"method":"ping"}`, want: []string{`"id":-0`}},
		{name: "an id beyond all numbers", send: `{"jsonrpc":"2.0","id":1e400,"method":"ping"}`, code: -32600, want: []string{`"id":null`, "id must be"}},
		{name: "an id beyond all numbers, of a call", send: toCall("-1e400", "echo", "{}"), code: -32600, want: []string{`"id":null`}},
		{name: "a token beyond all numbers", send: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{"progressToken":1e400}}}`, code: -32602},
		{name: "method is not a string", send: `{"jsonrpc":"2.0","id":1,"method":7}`, code: -32600},
		{name: "params are not an object", send: `{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}`, code: -32602},
		{name: "method and result", send: `{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}`, code: -32600},
		{name: "key twice in the envelope", send: `{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}`, code: -32600, want: []string{`"id":null`}},
		{name: "id twice", send: `{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, code: -32600, want: []string{`"id":null`}},
		{name: "id twice, behind an argument twice", send: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a":1,"a":2}},"id":2}`, code: -32600, want: []string{`"id":null`}},
		{name: "id twice, behind a parameter twice", send: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","name":"hang"},"id":2}`, code: -32600, want: []string{`"id":null`}},
		{name: "name twice, behind an argument twice", send: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a":1,"a":2},"name":"hang"}}`, code: -32600, want: []string{`"id":1`}},
		{name: "arguments of no call", send: `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"arguments":{"a":1,"a":2}}}`, code: -32600, want: []string{`"id":1`, `params.arguments: duplicate key`}},
		{name: "Method", send: `{"jsonrpc":"2.0","id":1,"Method":"ping"}`, code: -32600},
		{name: "method and METHOD", send: `{"jsonrpc":"2.0","id":1,"method":"ping","METHOD":"tools/list"}`, code: -32600},
		{name: "ID", send: `{"jsonrpc":"2.0","ID":1,"method":"ping"}`, code: -32600},
		{name: "params._Meta", send: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + strings.Replace(modernMeta, "_meta", "_Meta", 1) + `}}`, code: -32602},
		{name: "params.Name", send: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","Name":"hang"}}`, code: -32600},
		{name: "params.Name alone", send: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"Name":"hang"}}`, code: -32602},
		{name: "name twice by an escape", send: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","n\u0061me":"hang"}}`, code: -32600},
		{name: "argument twice", send: toCall("1", "echo", `{"code":"a","code":"b"}`), want: []string{`"isError":true`, `"INVALID_REQUEST"`, `duplicate key`}},
		{name: "argument twice by an escape", send: toCall("1", "echo", `{"code":"a","c\u006fde":"b"}`), want: []string{`"INVALID_REQUEST"`}},
		{name: "argument twice but for case", send: toCall("1", "echo", `{"code":"a","Code":"b"}`), want: []string{`"INVALID_REQUEST"`}},
		{name: "argument with a long s", send: toCall("1", "echo", `{"ſ":"a", "s":"b"}`), want: []string{`"INVALID_REQUEST"`}},
		{name: "argument twice far within", send: toCall("1", "echo", `{"x":[{"y":{"z":1,"z":2}}]}`), want: []string{`"INVALID_REQUEST"`, `x.[].y: `}},
		{name: "arguments nested deeply", send: toCall("1", "echo", `{"x":`+strings.Repeat("[", 70)+strings.Repeat("]", 70)+`}`), want: []string{`"INVALID_REQUEST"`, "nested deeper"}},
		{name: "nested very deeply", send: toCall("1", "echo", strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000)), code: -32700, want: []string{`"id":1`}},
		{name: "many keys", send: toCall("1", "echo", `{"x":[`+strings.Repeat("0,", strictjson.MaxEntries)+`0]}`), want: []string{`"INVALID_REQUEST"`, "more than 10000 entries"}},
		{name: "a token that is an object", send: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{"progressToken":{}}}}`, code: -32602},
		{name: "traceparent", send: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}}`, want: []string{`"trace":"0af7651916cd43dd8448eb211c80319c"`}},
		{name: "batch without initialize", send: `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, code: -32600},
		{name: "a batch that is not JSON", send: `[{"jsonrpc"`, code: -32700},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			k := dial(t, testServer(t), tool.Caller{Principal: "user:t"})
			m := k.ask(row.send)
			if got := 0; m.Error != nil || row.code != 0 {
				if m.Error != nil {
					got = m.Error.Code
				}
				if got != row.code {
					t.Errorf("code %d, want %d: %.300s", got, row.code, m.raw)
				}
			}
			for _, want := range row.want {
				if !bytes.Contains(m.raw, []byte(want)) {
					t.Errorf("no %s in %.600s", want, m.raw)
				}
			}
			if m = k.ask(`{"jsonrpc":"2.0","id":"after","method":"ping"}`); string(m.ID) != `"after"` && m.Method == "" && string(m.ID) != "1" {
				t.Errorf("unexpected message: %s", m.raw)
			}
		})
	}
}

// TestList: tools are listed in order, once each, with their definitions.
func TestList(t *testing.T) {
	for _, row := range []struct {
		dotted bool
		want   string
	}{
		{false, "array chatty denies echo empty explodes fails hang huge image panics text wide"},
		{true, "sdl.array sdl.chatty sdl.denies sdl.echo sdl.empty sdl.explodes sdl.fails sdl.hang sdl.huge sdl.image sdl.panics sdl.text sdl.wide"},
	} {
		k := dial(t, New(Options{Version: "1", Tools: testTools(), Dotted: row.dotted}), tool.Caller{})
		m := k.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		var names []string
		for _, tool := range m.Result.Tools {
			names = append(names, tool.Name)
		}
		if got := strings.Join(names, " "); got != row.want {
			t.Errorf("dotted %v: %s", row.dotted, got)
		}
		for _, want := range []string{
			`"title":"Fake echo"`, `"readOnlyHint":true`, `"destructiveHint":false`, `"idempotentHint":true`, `"openWorldHint":false`,
			`"inputSchema":{"type":"object","properties":{"code":{"type":"string"}`, `"outputSchema":{"type":"object"`,
		} {
			if !bytes.Contains(m.raw, []byte(want)) {
				t.Errorf("no %s in %.600s", want, m.raw)
			}
		}
		for _, name := range []string{"echo", "sdl.echo"} {
			if m := k.ask(toCall("2", name, "{}")); m.Result.Structured == nil {
				t.Errorf("dotted %v: %s is not accepted: %s", row.dotted, name, m.raw)
			}
		}
	}
}

// TestToolsOfPrincipal: a principal sees and can call its own tools only, and cannot tell others from unknown ones.
func TestToolsOfPrincipal(t *testing.T) {
	for _, own := range []string{"echo", "sdl.echo"} {
		k := dial(t, testServer(t), tool.Caller{Principal: "token:t", Tools: []string{own}})
		if m := k.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); len(m.Result.Tools) != 1 || m.Result.Tools[0].Name != "echo" {
			t.Errorf("list: %s", m.raw)
		}
		if m := k.ask(toCall("2", "echo", "{}")); m.Result.IsError || m.Error != nil {
			t.Errorf("own tool: %s", m.raw)
		}
		other, unknown := k.ask(toCall("3", "fails", "{}")), k.ask(toCall("3", "nope", "{}"))
		if other.Error == nil || strings.ReplaceAll(other.Error.Message, "fails", "nope") != unknown.Error.Message {
			t.Errorf("another tool: %s, an unknown one: %s", other.raw, unknown.raw)
		}
	}
	k := dial(t, testServer(t), tool.Caller{Tools: []string{}})
	if m := k.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); len(m.Result.Tools) != 0 {
		t.Errorf("no tool is allowed, but the list is %s", m.raw)
	}
}

// TestSizes: short results are repeated as text, and no message exceeds what clients accept.
func TestSizes(t *testing.T) {
	sandboxtest.OneGoroutine(t)
	k := dial(t, testServer(t), tool.Caller{})
	for _, row := range []struct {
		tool, arguments string
		text            string // "same", or what is in it
		isError, cut    bool
	}{
		{"huge", `{"n":1000}`, "same", false, false},
		{"huge", `{"n":60000}`, "same", false, false},
		{"huge", `{"n":70000}`, `"ok":true,"truncated":"only structuredContent has: out"`, false, false},
		{"huge", `{"n":8000000}`, "truncated", false, false},
		{"huge", `{"n":12000000}`, "truncated", false, true},
		{"wide", `{}`, "INTERNAL", true, false},
	} {
		m := k.ask(toCall("1", row.tool, row.arguments))
		text := m.Result.Content[0].Text
		switch {
		case len(m.raw) > tool.MaxMessage+1:
			t.Errorf("%s %s: %d bytes", row.tool, row.arguments, len(m.raw))
		case m.Result.IsError != row.isError:
			t.Errorf("%s %s: isError %v: %.200s", row.tool, row.arguments, m.Result.IsError, m.raw)
		case row.text == "same" && text != string(m.Result.Structured):
			t.Errorf("%s %s: the text is %.200s", row.tool, row.arguments, text)
		case row.text != "same" && (!strings.Contains(text, row.text) || len(text) > tool.MaxText+64):
			t.Errorf("%s %s: the text of %d bytes is %.200s", row.tool, row.arguments, len(text), text)
		case bytes.Contains(m.Result.Structured, []byte(") [truncated]")) != row.cut:
			t.Errorf("%s %s: marked: %v", row.tool, row.arguments, !row.cut)
		}
	}
}

// TestRawResult: JSON that a tool returns is sent unchanged, as one line of UTF-8.
func TestRawResult(t *testing.T) {
	for _, row := range []struct{ raw, want string }{
		{`{"a":"<b>"}`, `{"a":"<b>"}`},
		{" {\"a\": 1.50,\n\"b\": []}\n", `{"a":1.50,"b":[]}`},
		{"{\"a\":\"\xff\"}", `{"a":"` + "\uFFFD" + `"}`},
		{`{"a"`, `INTERNAL`},
		{`[1]`, `INTERNAL`},
		{``, `INTERNAL`},
	} {
		k := dial(t, New(Options{Tools: []tool.Tool{newFake("raw", func(context.Context, json.RawMessage) (tool.Result, error) {
			return tool.Result{Structured: json.RawMessage(row.raw)}, nil
		})}}), tool.Caller{})
		m := k.ask(toCall("1", "raw", "{}"))
		if !bytes.Contains(m.Result.Structured, []byte(row.want)) || m.Result.Content[0].Text != string(m.Result.Structured) || !utf8.Valid(m.raw) {
			t.Errorf("%q: %q", row.raw, m.raw)
		}
	}
}

// TestProgress: progress is sent on request only, increases, and ends before the response.
func TestProgress(t *testing.T) {
	k := dial(t, testServer(t), tool.Caller{})
	if m := k.ask(toCall("1", "chatty", "{}")); m.Method != "" {
		t.Errorf("progress without a token: %s", m.raw)
	}
	k.write(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"chatty","_meta":{"progressToken":"a\"b"}}}`)
	last, notes := -1.0, 0
	for {
		m := k.read()
		if m.Method == "" {
			if string(m.ID) != "2" {
				t.Errorf("answer %s", m.raw)
			}
			break
		}
		notes++
		if m.Params.Progress <= last || string(m.Params.Token) != `"a\"b"` || m.Params.Message != "step" {
			t.Errorf("%s after %v", m.raw, last)
		}
		last = m.Params.Progress
	}
	if notes == 0 || notes > 5000 || last != 19_999 {
		t.Errorf("%d notifications, the last of %v", notes, last)
	}
	if m := k.ask(`{"jsonrpc":"2.0","id":3,"method":"ping"}`); string(m.ID) != "3" {
		t.Errorf("after the response %s", m.raw)
	}
}

// TestProgressAfter: progress reported after the call is dropped.
func TestProgressAfter(t *testing.T) {
	var late tool.Caller
	s := New(Options{Tools: []tool.Tool{newFake("late", func(ctx context.Context, _ json.RawMessage) (tool.Result, error) {
		late = tool.CallerOf(ctx)
		return tool.Result{Structured: map[string]any{}}, nil
	})}})
	k := dial(t, s, tool.Caller{})
	k.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"late","_meta":{"progressToken":1}}}`)
	late.Progress(1, "hello?")
	if m := k.ask(`{"jsonrpc":"2.0","id":2,"method":"ping"}`); m.Method != "" {
		t.Errorf("got %s", m.raw)
	}
}

// TestNewPanics: New panics for tools that cannot be served.
func TestNewPanics(t *testing.T) {
	bad := newFake("bad", nil)
	bad.def.Input = json.RawMessage(`{"type":"string"}`)
	out := newFake("out", nil)
	out.def.Output = json.RawMessage(`[]`)
	for name, tools := range map[string][]tool.Tool{
		"input": {bad}, "output": {out}, "twice": {newFake("a", nil), newFake("a", nil)},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: New did not panic", name)
				}
			}()
			New(Options{Tools: tools})
		}()
	}
}

// TestCallers: each call has a trace of its own and the session of the connection.
func TestCallers(t *testing.T) {
	s := testServer(t)
	type echo struct{ Session, Trace, Principal string }
	seen := map[string]bool{}
	var mu sync.Mutex
	for range 2 {
		k := dial(t, s, tool.Caller{Principal: "user:t"})
		var first echo
		for n := range 2 {
			var e echo
			if err := json.Unmarshal(k.ask(toCall("1", "echo", "{}")).Result.Structured, &e); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			if e.Session == "" || len(e.Trace) != 32 || e.Principal != "user:t" || seen[e.Trace] {
				t.Errorf("%+v", e)
			}
			if n == 0 && seen[e.Session] || n == 1 && e.Session != first.Session {
				t.Errorf("the session is not the connection's: %+v", e)
			}
			seen[e.Trace], seen[e.Session], first = true, true, e
			mu.Unlock()
		}
	}
}

// TestUnlisted: an unlisted tool can be called by all who may use all tools, and is listed to those whose tools name it. The
// instructions are those for the listed tools.
func TestUnlisted(t *testing.T) {
	s := New(Options{
		Version: "1.2.3", Tools: []tool.Tool{testTools()[0]}, Unlisted: []tool.Tool{newFake("apart", func(context.Context, json.RawMessage) (tool.Result, error) {
			return tool.Result{Text: "apart", Whole: true}, nil
		})},
		Instructions: func(names []string) string { return "for " + strings.Join(names, " and ") },
	})
	for _, tt := range []struct {
		may          []string
		listed, said string
		called       bool
	}{
		{nil, "echo", "for echo", true},
		{[]string{"apart"}, "apart", "for apart", true},
		{[]string{"apart", "echo"}, "apart echo", "for apart and echo", true},
		{[]string{"echo"}, "echo", "for echo", false},
	} {
		k := dial(t, s, tool.Caller{Principal: "user:t", Tools: tt.may})
		if m := k.ask(initialize("2025-11-25")); !bytes.Contains(m.raw, []byte(`"instructions":"`+tt.said+`"`)) {
			t.Errorf("%q: %s", tt.may, m.raw)
		}
		var names []string
		for _, one := range k.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`).Result.Tools {
			names = append(names, one.Name)
		}
		if got := strings.Join(names, " "); got != tt.listed {
			t.Errorf("%q: listed %s", tt.may, got)
		}
		if m := k.ask(toCall("2", "apart", "{}")); (m.Error == nil) != tt.called {
			t.Errorf("%q: %s", tt.may, m.raw)
		}
	}
	modern := dial(t, s, tool.Caller{Principal: "user:t"}).ask(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + modernMeta + `}}`)
	if !bytes.Contains(modern.raw, []byte(`"instructions":"for echo"`)) {
		t.Errorf("server/discover: %s", modern.raw)
	}
}
