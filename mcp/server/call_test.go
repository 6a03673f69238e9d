package server

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"corral/mcp/tool"
)

// TestCallAcrossVersions: clients of 2026-07-28 get the results and errors of earlier versions, with the members that their
// version adds to results.
func TestCallAcrossVersions(t *testing.T) {
	const added = `,"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"corral","version":"1.2.3","title":"corral"}}}}`
	s := testServer(t)
	for _, name := range []string{"denies", "fails", "panics", "array", "empty", "text", "explodes", "sdl.text", "nope"} {
		for _, may := range [][]string{nil, {}, {name}, {"text"}} {
			var answers [2][]byte
			for n, meta := range []string{`"_meta":{"who":["me"]}`, modernMeta} {
				m, err := parseMessage([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + name + `",` + meta + `}}`))
				if err != nil {
					t.Fatalf("%s: %v", meta, err)
				}
				caller := tool.Caller{Trace: "t", Tools: may}
				answers[n] = s.handle(tool.WithCaller(t.Context(), caller), &call{message: m, caller: caller}, nil).data
			}
			modern := answers[1]
			if bytes.Contains(modern, []byte(`"result":`)) {
				modern = []byte(strings.Replace(string(modern), added, "}}", 1))
			}
			if !bytes.Equal(answers[0], modern) || bytes.Contains(answers[0], []byte("resultType")) {
				t.Errorf("%q of %q: %.300s, of 2026-07-28 %.300s", name, may, answers[0], answers[1])
			}
		}
	}
}

// TestCallMeta: ids and tokens are returned as the client wrote them, and _meta is checked for clients of 2026-07-28.
func TestCallMeta(t *testing.T) {
	const version = `"io.modelcontextprotocol/protocolVersion"`
	for _, row := range []struct{ name, id, meta, want string }{
		{"a number", `123456789012345`, `{}`, `"id":123456789012345,"result"`},
		{"a text", `"\u0061"`, `{}`, `"id":"\u0061","result"`},
		{"a number out of range", `1e999`, `{}`, `"id":null,"error":{"code":-32600`},
		{"a token out of range", `1`, `{"progressToken":1e999}`, `"id":1,"error":{"code":-32602`},
		{"a negative number", `-1`, `{}`, `"id":-1,"result"`},
		{"no _meta", `1`, `null`, `"result"`},
		{"a list", `1`, `[]`, `"error":{"code":-32602,"message":"params._meta must be an object"}`},
		{"an older version", `1`, `{` + version + `:"2025-06-18"}`, `"result"`},
		{"no capabilities", `1`, `{` + version + `:"2026-07-28"}`, `"code":-32602,"message":"missing or invalid _meta field io.modelcontextprotocol/clientCapabilities"`},
		{"null capabilities", `1`, `{` + version + `:"2026-07-28","io.modelcontextprotocol/clientCapabilities":null}`, `"code":-32602`},
		{"a list of capabilities", `1`, `{` + version + `:"2026-07-28","io.modelcontextprotocol/clientCapabilities":[]}`, `"code":-32602`},
		{"wrong capabilities", `1`, `{` + version + `:"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":1}}`, `"code":-32602`},
		{"a version to come", `1`, `{` + version + `:"2027-01-01","io.modelcontextprotocol/clientCapabilities":{}}`, `"code":-32022`},
		{"the current version", `1`, `{` + version + `:"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`, `"resultType":"complete"`},
	} {
		var answer []byte
		m, err := parseMessage([]byte(`{"jsonrpc":"2.0","id":` + row.id + `,"method":"tools/call","params":{"name":"text","_meta":` + row.meta + `}}`))
		if err != nil {
			answer = dialect.Error(m.id, err)
		} else {
			answer = testServer(t).answer(t.Context(), m, tool.Caller{}, func([]byte) {}).data
		}
		if !json.Valid(answer) || !bytes.Contains(answer, []byte(row.want)) {
			t.Errorf("%s: %s", row.name, answer)
		}
	}
}
