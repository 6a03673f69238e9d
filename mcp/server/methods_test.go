package server

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/mark3labs/mcp-go/mcp"
	sdkserver "github.com/mark3labs/mcp-go/server"

	"corral/internal/strictjson"
	"corral/internal/text"
	"corral/mcp/tool"
)

// A likeSession is mcp-go's view of a client.
type likeSession struct {
	notes   chan sdk.JSONRPCNotification
	version string
}

func (p *likeSession) Initialize()                                         {}
func (p *likeSession) Initialized() bool                                   { return true }
func (p *likeSession) SessionID() string                                   { return "" }
func (p *likeSession) NotificationChannel() chan<- sdk.JSONRPCNotification { return p.notes }
func (p *likeSession) SetProtocolVersion(version string)                   { p.version = version }

// likeMCPGo returns the server of mcp-go with the same tools.
func likeMCPGo(s *Server) *sdkserver.MCPServer {
	b := s.now.Load()
	like := sdkserver.NewMCPServer(s.identity.Name, s.identity.Version, sdkserver.WithTitle(s.identity.Title),
		sdkserver.WithToolCapabilities(false), sdkserver.WithInstructions(s.instructions(b, nil)),
		sdkserver.WithCacheHints(int64(time.Minute/time.Millisecond), sdk.CacheScopePrivate))
	for name, t := range b.tools {
		if name == t.published {
			like.AddTool(t.sdk, func(context.Context, sdk.CallToolRequest) (*sdk.CallToolResult, error) { return nil, nil })
		}
	}
	return like
}

// TestLikeMCPGo: requests other than tools/call are answered as by the server of mcp-go, which is not linked into programs: its
// package compiles the drafts of JSON Schema whenever a program starts, which doubles the time that corral-front takes.
func TestLikeMCPGo(t *testing.T) {
	s := testServer(t)
	like := likeMCPGo(s)
	names := []string{"no/such", "", "Ping", "tools/list\n", "\x1b[2J\u202e"}
	for name := range methods {
		names = append(names, string(name))
	}
	slices.Sort(names)
	versions := []string{
		"", modernMeta, strings.Replace(modernMeta, "2026-07-28", "2027-01-01", 1), strings.Replace(modernMeta, "2026-07-28", "2025-11-25", 1),
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`,
		strings.Replace(modernMeta, `ties":{}`, `ties":[]`, 1), strings.Replace(modernMeta, `ties":{}`, `ties":{"roots":5}`, 1),
		`"_meta":null`, `"_meta":{"progressToken":"p"}`, `"_meta":{"io.modelcontextprotocol/protocolVersion":7}`,
	}
	params := []string{
		"", `"cursor":"ZWNobw=="`, `"cursor":"!"`, `"cursor":5`, `"cursor":""`, `"cursor":null`,
		`"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"t","version":"1"}`, `"protocolVersion":5`,
		`"protocolVersion":"2026-07-28"`, `"capabilities":[]`, `"clientInfo":{"name":5}`, `"level":"debug"`, `"uri":"x"`,
		`"notifications":{}`, `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a"]}`, `"notifications":[]`, `"unknown":[1]`,
	}
	compared := 0
	for _, name := range names {
		for _, version := range versions {
			for _, param := range params {
				compared += compare(t, s, like, name, strings.Trim(param+","+version, ","))
			}
		}
	}
	if compared < len(methods)*len(versions)*len(params)*3/4 {
		t.Errorf("%d requests were compared", compared)
	}
}

// compare compares the answers to a request, and returns 1, or 0 if the request does not reach a method.
func compare(t *testing.T, s *Server, like *sdkserver.MCPServer, name, params string) int {
	t.Helper()
	send := fmt.Sprintf(`{"jsonrpc":"2.0","id":"i","method":%s,"params":{%s}}`, strictjson.Encode(name), params)
	m, refused := parseMessage([]byte(send))
	if refused != nil {
		return 0
	}
	var got, want []any
	add := func(to *[]any, message []byte) {
		var v any
		if err := json.Unmarshal(message, &v); err != nil {
			t.Errorf("%s: %v: %s", send, err, message)
		}
		*to = append(*to, v)
	}
	r := s.answer(t.Context(), m, tool.Caller{}, func(note []byte) { add(&got, note) })
	add(&got, r.data)
	p := &likeSession{notes: make(chan sdk.JSONRPCNotification, 4)}
	response := like.HandleMessage(like.WithContext(t.Context(), p), m.envelope())
	for len(p.notes) > 0 {
		add(&want, strictjson.Encode(<-p.notes))
	}
	add(&want, strictjson.Encode(response))
	if answer := want[len(want)-1].(map[string]any); answer["error"] != nil { // Errorf makes messages safe to print
		details := answer["error"].(map[string]any)
		details["message"] = text.Lines(details["message"].(string))
	}
	if !reflect.DeepEqual(got, want) || r.version != p.version {
		t.Errorf("%s\n got %s %s\nwant %s %s", send, r.version, strictjson.Encode(got), p.version, strictjson.Encode(want))
	}
	return 1
}

// TestIDs: the number of a request is repeated as it was written, wherever it is.
func TestIDs(t *testing.T) {
	k := dial(t, testServer(t), tool.Caller{Principal: "user:t"})
	k.write(`{"jsonrpc":"2.0","id":12345678901234567890,"method":"subscriptions/listen","params":{"notifications":{},` + modernMeta + `}}`)
	for range 2 { // the notification and the response
		if m := k.read(); strings.Count(string(m.raw), "/subscriptionId\":12345678901234567890") != 1 {
			t.Errorf("%s", m.raw)
		}
	}
}
