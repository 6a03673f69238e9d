package server

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"time"

	sdk "github.com/mark3labs/mcp-go/mcp"

	"corral/internal/jsonrpc"
	"corral/internal/strictjson"
)

// An era says in which versions of the protocol a method exists.
type era int

const (
	always era = iota
	legacy     // before 2026-07-28
	modern     // since then
)

// A method is a request of the protocol, other than tools/call.
type method struct {
	in    era
	lacks string // the capability that the method belongs to, if this server does not have it
	// serve returns the result, a pointer. It may call notify before it returns.
	serve func(s *Server, k *call, notify func([]byte)) (any, *jsonrpc.Error)
}

// methods has the methods that clients may request. TestLikeMCPGo compares the answers with those of the server of mcp-go.
var methods = map[sdk.MCPMethod]method{
	sdk.MethodInitialize:             {in: legacy, serve: (*Server).initialize},
	sdk.MethodPing:                   {in: legacy, serve: (*Server).ping},
	sdk.MethodServerDiscover:         {in: modern, serve: (*Server).discover},
	sdk.MethodSubscriptionsListen:    {in: modern, serve: (*Server).listen},
	sdk.MethodToolsList:              {serve: (*Server).list},
	sdk.MethodSetLogLevel:            {in: legacy, lacks: "logging"},
	sdk.MethodResourcesList:          {lacks: "resources"},
	sdk.MethodResourcesTemplatesList: {lacks: "resources"},
	sdk.MethodResourcesRead:          {lacks: "resources"},
	sdk.MethodResourcesSubscribe:     {in: legacy, lacks: "resources"},
	sdk.MethodResourcesUnsubscribe:   {in: legacy, lacks: "resources"},
	sdk.MethodPromptsList:            {lacks: "prompts"},
	sdk.MethodPromptsGet:             {lacks: "prompts"},
	sdk.MethodTasksGet:               {lacks: "tasks"},
	sdk.MethodTasksList:              {in: legacy, lacks: "tasks"},
	sdk.MethodTasksResult:            {in: legacy, lacks: "tasks"},
	sdk.MethodTasksCancel:            {lacks: "tasks"},
	sdk.MethodCompletionComplete:     {lacks: "completions"},
}

// request serves a request other than tools/call.
func (s *Server) request(k *call, notify func([]byte)) reply {
	m, err := k.lookUp()
	if err != nil {
		return errorReply(k.id, err)
	}
	result, err := m.serve(s, k, notify)
	if err != nil {
		return errorReply(k.id, err)
	}
	if k.modern() {
		s.decorate(result)
	}
	r := encodeAny(k.id, result)
	if opened, ok := result.(*sdk.InitializeResult); ok {
		r.version = opened.ProtocolVersion
	}
	return r
}

// lookUp returns the method of a request that can be served.
func (k *call) lookUp() (m method, err *jsonrpc.Error) {
	if k.modern() {
		if err := k.checkModern(); err != nil {
			return m, err
		}
	}
	m, known := methods[sdk.MCPMethod(k.method)]
	refuse := func(format string, values ...any) (method, *jsonrpc.Error) {
		return m, jsonrpc.Errorf(jsonrpc.CodeMethod, format, values...)
	}
	switch {
	case !known:
		return refuse("Method %s not found", k.method)
	case m.in == legacy && k.modern():
		return refuse("%q was removed in protocol version %s", k.method, sdk.ProtocolVersion20260728)
	case m.in == modern && !k.modern():
		return refuse("%q requires protocol version %s or later", k.method, sdk.ProtocolVersion20260728)
	case m.lacks != "":
		return refuse("%s not supported", m.lacks)
	}
	return m, nil
}

// decode decodes the whole request.
func (k *call) decode(request any) *jsonrpc.Error {
	if err := json.Unmarshal(k.envelope(), request); err != nil {
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "unparsable %s request: %v", k.method, err)
	}
	return nil
}

// listTime is how long clients may show a list. An operator seldom changes the tools of a principal.
const listTime = time.Minute

// decorate adds what results have since 2026-07-28.
func (s *Server) decorate(result any) {
	if r, ok := result.(sdk.ResultMetadata); ok {
		r.SetResultType(sdk.ResultTypeComplete)
		r.EnsureResultMeta().SetServerInfo(s.identity)
	}
	if r, ok := result.(sdk.CacheHintSetter); ok {
		r.SetCacheHints(listTime.Milliseconds(), sdk.CacheScopePrivate)
	}
}

// capabilities are those of the server: tools, whose list changes without a notification.
func capabilities() (c sdk.ServerCapabilities) {
	c.Tools = &struct {
		ListChanged bool `json:"listChanged,omitempty"`
	}{}
	return c
}

func (s *Server) initialize(k *call, _ func([]byte)) (any, *jsonrpc.Error) {
	var request sdk.InitializeRequest
	if err := k.decode(&request); err != nil {
		return nil, err
	}
	return &sdk.InitializeResult{
		ProtocolVersion: sdk.NegotiateLegacyVersion(request.Params.ProtocolVersion), ServerInfo: s.identity,
		Capabilities: capabilities(), Instructions: s.instructions(k.table, k.caller.Tools),
	}, nil
}

func (s *Server) ping(k *call, _ func([]byte)) (any, *jsonrpc.Error) {
	return &sdk.EmptyResult{}, k.decode(&sdk.PingRequest{})
}

func (s *Server) discover(k *call, _ func([]byte)) (any, *jsonrpc.Error) {
	return &sdk.DiscoverResult{
		SupportedVersions: sdk.ValidProtocolVersions, Capabilities: capabilities(), Instructions: s.instructions(k.table, k.caller.Tools),
	}, k.decode(&sdk.DiscoverRequest{})
}

// list serves tools/list. All tools fit on one page, so the server returns no cursor; it accepts that of another server, which
// is the name of the last tool that the client has.
func (s *Server) list(k *call, _ func([]byte)) (any, *jsonrpc.Error) {
	var request sdk.ListToolsRequest
	if err := k.decode(&request); err != nil {
		return nil, err
	}
	after, err := base64.StdEncoding.DecodeString(string(request.Params.Cursor))
	if err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeParams, "%v", err)
	}
	tools := slices.DeleteFunc(k.table.listedTo(k.caller.Tools), func(t sdk.Tool) bool { return t.Name <= string(after) })
	return &sdk.ListToolsResult{Tools: tools}, nil
}

// listedTo returns the tools that are listed to callers that may use those of a list, in alphabetical order; nil is all.
func (b *table) listedTo(may []string) []sdk.Tool {
	list := []sdk.Tool{}
	for _, name := range slices.Sorted(maps.Keys(b.tools)) {
		if t := b.tools[name]; name == t.published && t.listedTo(may) {
			list = append(list, t.sdk)
		}
	}
	return list
}

// listen serves subscriptions/listen. The server sends no notifications of the kinds that clients can ask for, so it says so and
// returns.
func (s *Server) listen(k *call, notify func([]byte)) (any, *jsonrpc.Error) {
	if err := k.decode(&sdk.SubscriptionsListenRequest{}); err != nil {
		return nil, err
	}
	notify(strictjson.Encode(sdk.JSONRPCNotification{
		JSONRPC: sdk.JSONRPC_VERSION,
		Notification: sdk.Notification{
			Method: sdk.MethodNotificationSubscriptionsAcknowledged,
			Params: sdk.NotificationParams{
				Meta:             map[string]any{sdk.MetaKeySubscriptionID: k.id},
				AdditionalFields: map[string]any{"notifications": sdk.SubscriptionFilter{}},
			},
		},
	}))
	result := &sdk.SubscriptionsListenResult{}
	result.EnsureResultMeta().SetSubscriptionID(k.id)
	return result, nil
}
