package server

import (
	"bytes"
	"corral/mcp/tool"
	"testing"
)

// TestPlainCallMatchesSDK: a call that bypasses mcp-go gets the same response as one that does not.
func TestPlainCallMatchesSDK(t *testing.T) {
	s := testServer(t)
	for _, target := range []string{"denies", "fails", "panics", "array", "empty", "text", "explodes", "sdl.text", "nope"} {
		for _, may := range [][]string{nil, {}, {target}, {"text"}} {
			var answers [2][]byte
			for n, meta := range []string{`{"who":"me"}`, `{"who":["me"]}`} { // the second one goes through mcp-go
				m, err := parseMessage([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + target + `","_meta":` + meta + `}}`))
				if err != nil || m.plain() != (n == 0) {
					t.Fatalf("%s: %v, plain is %v", meta, err, m.plain())
				}
				caller := tool.Caller{Trace: "t", Tools: may}
				k := &call{message: m, caller: caller}
				answers[n] = s.handle(tool.WithCaller(withCall(t.Context(), k), caller), k, newPeer()).data
			}
			if !bytes.Equal(answers[0], answers[1]) {
				t.Errorf("%s of %q: %.200s, from mcp-go %.200s", target, may, answers[0], answers[1])
			}
		}
	}
}

// TestWhatIsPlain: a message that mcp-go may have to evaluate goes through it.
func TestWhatIsPlain(t *testing.T) {
	const call = `"method":"tools/call","params":{"name":"text"`
	for _, row := range []struct {
		name, text string
		plain      bool
	}{
		{"a number", `{"jsonrpc":"2.0","id":123456789012345,` + call + `}}`, true},
		{"a text", `{"jsonrpc":"2.0","id":"a",` + call + `}}`, true},
		{"a long number", `{"jsonrpc":"2.0","id":1234567890123456,` + call + `}}`, false},
		{"a number out of range", `{"jsonrpc":"2.0","id":1e999,` + call + `}}`, false},
		{"a negative number", `{"jsonrpc":"2.0","id":-1,` + call + `}}`, false},
		{"arguments", `{"jsonrpc":"2.0","id":1,` + call + `,"arguments":{"n":[1]}}}`, true},
		{"a token", `{"jsonrpc":"2.0","id":1,` + call + `,"_meta":{"progressToken":7}}}`, true},
		{"a token out of range", `{"jsonrpc":"2.0","id":1,` + call + `,"_meta":{"progressToken":1e999}}}`, false},
		{"no object", `{"jsonrpc":"2.0","id":1,` + call + `,"_meta":[]}}`, false},
		{"nothing", `{"jsonrpc":"2.0","id":1,` + call + `,"_meta":null}}`, false},
		{"an older version", `{"jsonrpc":"2.0","id":1,` + call + `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-06-18"}}}`, false},
		{"mcp-go's", `{"jsonrpc":"2.0","id":1,` + call + `,"_meta":{"io.modelcontextprotocol/logLevel":"debug"}}}`, false},
		{"of 2026-07-28", `{"jsonrpc":"2.0","id":1,` + call + `,` + modernMeta + `}}`, false},
	} {
		m, err := parseMessage([]byte(row.text))
		if err != nil || m.plain() != row.plain {
			t.Errorf("%s: %v, plain is %v", row.name, err, m.plain())
		}
	}
}
