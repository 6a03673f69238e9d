package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	sdk "github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"corral/internal/calls"

	safe "corral/internal/text"
)

// Options say what a Server serves.
type Options struct {
	Version string // of corral
	// Dotted publishes the names with dots where a tool has one. Many hosts refuse a server with such names. Calls may
	// use either name, whatever is published.
	Dotted bool
	Tools  []Tool
	// Instructions tell an agent what the server is for; "" is nothing.
	Instructions string
	// Log takes one line per call of a tool; nil drops them.
	Log *slog.Logger
	// Tracer is told of each call of a tool; nil is nobody to be told.
	Tracer calls.Tracer
	// Ended is called when a client's session has ended, with what its Callers had as Principal and Session: when its
	// connection or HTTP session has, and its calls have or were told to. Who has no session (2026-07-28) has no end. It may
	// be called by several goroutines at once; nil is nothing to be told.
	Ended func(principal, session string)
}

// A Server has tools, and answers the messages of any number of clients. To make one starts nothing.
type Server struct {
	sdk    *server.MCPServer
	tools  map[string]*tool // by each name
	log    *slog.Logger
	tracer calls.Tracer // may be nil
	ended  func(principal, session string)
	// answerTime is for ServeStdio: how long calls may go on at the end of the input.
	answerTime time.Duration
}

// A tool is a Tool as it is published.
type tool struct {
	Tool
	names     []string // without and with dots
	published string
	span      string   // what its span is called, without what all have
	keys      []string // of the arguments
}

// New makes a server. It panics when two tools share a name or a schema is not a JSON object: that is a mistake in the
// program, which its first start shows.
func New(o Options) *Server {
	s := &Server{tools: map[string]*tool{}, log: o.Log, tracer: o.Tracer, ended: o.Ended, answerTime: answerTime}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.ended == nil {
		s.ended = func(string, string) {}
	}
	s.sdk = server.NewMCPServer("corral", o.Version,
		server.WithTitle("corral"),
		server.WithInstructions(o.Instructions),
		server.WithToolCapabilities(false),
		server.WithToolFilter(s.allowed),
		// What a principal may see does not change while the server runs.
		server.WithCacheHints(int64(time.Minute/time.Millisecond), sdk.CacheScopePrivate))
	for _, t := range o.Tools {
		s.register(t, o.Dotted)
	}
	return s
}

func (s *Server) register(t Tool, dotted bool) {
	d := t.Definition()
	e := &tool{Tool: t, names: []string{d.Name}, published: d.Name, span: d.span(), keys: schemaKeys(d)}
	if d.Dotted != "" {
		e.names = append(e.names, d.Dotted)
	}
	if dotted {
		e.published = e.names[len(e.names)-1]
	}
	for _, name := range e.names {
		if s.tools[name] != nil {
			panic("mcp: two tools are named " + name)
		}
		s.tools[name] = e
	}
	s.sdk.AddTool(sdk.Tool{
		Name: e.published, Title: d.Title, Description: d.Description,
		RawInputSchema: d.Input, RawOutputSchema: d.Output,
		Annotations: sdk.ToolAnnotation{
			Title: d.Title, ReadOnlyHint: &d.ReadOnly, DestructiveHint: &d.Destructive,
			IdempotentHint: &d.Idempotent, OpenWorldHint: &d.OpenWorld,
		},
	}, func(ctx context.Context, _ sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		callOf(ctx).run(ctx, s, e)
		return &sdk.CallToolResult{}, nil // answer writes the call's own
	})
}

func schemaKeys(d Definition) []string {
	var in, out struct {
		Type       string                     `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(d.Input, &in); err != nil || in.Type != "object" {
		panic("mcp: the input schema of " + d.Name + " has no object root")
	}
	if d.Output != nil {
		if err := json.Unmarshal(d.Output, &out); err != nil || out.Type != "object" {
			panic("mcp: the output schema of " + d.Name + " has no object root")
		}
	}
	keys := make([]string, 0, len(in.Properties))
	for key := range in.Properties {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// allowed drops the tools that the caller may not use. mcp-go asks it for lists and for calls.
func (s *Server) allowed(ctx context.Context, list []sdk.Tool) []sdk.Tool {
	may := CallerOf(ctx).Tools
	if may == nil {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(t sdk.Tool) bool { return !s.tools[t.Name].in(may) })
}

// in says whether the tool is among those of a list, by either name; nil lists all.
func (t *tool) in(list []string) bool {
	return list == nil || slices.ContainsFunc(t.names, func(name string) bool { return slices.Contains(list, name) })
}

// A peer is what mcp-go knows of a client: it has one for each request, so nothing of one can reach another.
type peer struct {
	notes   chan sdk.JSONRPCNotification
	version string // negotiated by initialize
}

func newPeer() *peer { return &peer{notes: make(chan sdk.JSONRPCNotification, 4)} }

// Initialize implements server.ClientSession.
func (p *peer) Initialize() {}

// Initialized implements server.ClientSession.
func (p *peer) Initialized() bool { return true }

// SessionID implements server.ClientSession.
func (p *peer) SessionID() string { return "" }

// NotificationChannel implements server.ClientSession.
func (p *peer) NotificationChannel() chan<- sdk.JSONRPCNotification { return p.notes }

// SetProtocolVersion is called with what initialize agreed on.
func (p *peer) SetProtocolVersion(version string) { p.version = version }

// A reply is the answer to a request.
type reply struct {
	data    []byte
	code    int    // of a JSON-RPC error; 0 is none
	version string // that initialize agreed on, else ""
}

// answer serves one request. notify sends a notification that belongs to it and must not block; it is not called any
// more once answer has returned. When ctx ends the tool is to end, and answer waits for it.
func (s *Server) answer(ctx context.Context, m *message, c Caller, notify func([]byte)) reply {
	reports := &progress{token: m.meta.progress, send: notify}
	at := calls.TraceOf(m.meta.trace, m.meta.state)
	c.Progress, c.Trace, c.quiet = reports.report, at.ID, reports.token == nil
	k := &call{message: m, caller: c}
	p := newPeer()
	ctx = k.begin(WithCaller(withCall(ctx, k), c), s, at)
	r := s.handle(ctx, k, p)
	reports.close()
	for len(p.notes) > 0 {
		notify(jsonOf(<-p.notes))
	}
	r.version = p.version
	if m.isCall() {
		k.log(ctx, s.log, r)
	}
	return r
}

// handle is mcp-go's part, and the writing of what it says; a call that it would do no more with than pass it on has its
// tool at once. A panic here is none of a tool's, and ends one request only.
func (s *Server) handle(ctx context.Context, k *call, p *peer) (r reply) {
	defer func() {
		if p := recover(); p != nil {
			s.log.ErrorContext(ctx, "panic in the protocol", "trace_id", k.caller.Trace, "panic", fmt.Sprint(p),
				"stack", string(debug.Stack()))
			r = reply{data: errorOf(k.id, refused(codeInside, "the server could not answer")), code: codeInside}
		}
	}()
	t, published := s.tools[k.tool], k.tool
	if t != nil {
		if k.plain() && t.in(k.caller.Tools) {
			k.run(ctx, s, t)
			return reply{data: k.encodeResult(nil)}
		}
		published = t.published
	}
	return k.encode(s.sdk.HandleMessage(s.sdk.WithContext(ctx, p), k.envelope(published)))
}

// fail reports err as a tool's error.
func fail(err error) *Error {
	fault := Error{Code: CodeInternal, Message: err.Error()}
	if e := (*Error)(nil); errors.As(err, &e) {
		fault = *e
	}
	fault.Message = safe.Lines(fault.Message)
	return &fault
}
