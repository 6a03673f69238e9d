package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	sdk "github.com/mark3labs/mcp-go/mcp"

	"corral/internal/calls"
	"corral/internal/jsonrpc"
	"corral/mcp/tool"
)

// Options configure a Server.
type Options struct {
	Version string // of corral
	// Dotted publishes the names with dots of the tools that have one. Many hosts refuse servers with such names. Calls
	// may always use either name.
	Dotted bool
	// Structured sends structuredContent, and publishes its schema, for tools whose text says all of it (TextOnly), too.
	Structured bool
	Tools      []tool.Tool
	// Unlisted are further tools. They can be called as the others, but are listed only to callers whose Tools name them.
	Unlisted []tool.Tool
	// Instructions returns the description of the server for an agent that is shown the tools of these names, without dots; nil
	// and "" are none.
	Instructions func(names []string) string
	// Log gets one line per tool call; nil discards.
	Log *slog.Logger
	// Tracer gets a span per tool call; nil is none.
	Tracer calls.Tracer
	// Ended is called when a client session has ended, with the Principal and Session of its Callers. The session's calls
	// have returned or have been cancelled by then. Clients without sessions (2026-07-28) have no end. Ended may be called
	// concurrently; nil is not called.
	Ended func(principal, session string)
	// Before is called before each line of ServeStdio is served, and not concurrently; nil is not called.
	Before func()
}

// A Server serves tools to any number of clients. Creating one starts nothing.
type Server struct {
	identity sdk.Implementation
	options  Options               // Tools and Unlisted are those of the start
	now      atomic.Pointer[table] // see Replace
	log      *slog.Logger
	tracer   calls.Tracer // may be nil
	ended    func(principal, session string)
	about    func(names []string) string // may be nil
	// drainTimeout is how long ServeStdio waits for calls after the end of the input.
	answerTime time.Duration
}

// A table is the tools of a server between two calls of Replace.
type table struct {
	tools   map[string]*registered // by each name, with and without dots
	removed []string               // see tool.Caller
}

// A registered is a tool of the server.
type registered struct {
	tool.Tool
	names     []string // without and with dots
	published string
	sdk       sdk.Tool // as it is listed
	span      string   // name of its spans, without the common prefix
	unlisted  bool
	textOnly  bool // its successful results have no structuredContent
}

// New returns a server. It panics if two tools share a name or a schema is not a JSON object: programming errors that
// show at the first start.
func New(o Options) *Server {
	s := &Server{options: o, log: o.Log, tracer: o.Tracer, ended: o.Ended, about: o.Instructions, answerTime: drainTimeout}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.ended == nil {
		s.ended = func(string, string) {}
	}
	s.identity = sdk.Implementation{Name: "corral", Version: o.Version, Title: "corral"}
	s.Replace(o.Tools, o.Unlisted, nil)
	return s
}

// Replace replaces the tools and the unlisted tools for the requests that come from now on. Calls in progress keep theirs. removed
// are the ids of repositories that are not served any more. It panics as New does.
func (s *Server) Replace(tools, unlisted []tool.Tool, removed []string) {
	t := &table{tools: map[string]*registered{}, removed: removed}
	for _, one := range tools {
		t.register(one, &s.options, false)
	}
	for _, one := range unlisted {
		t.register(one, &s.options, true)
	}
	s.now.Store(t)
}

func (b *table) register(t tool.Tool, o *Options, unlisted bool) {
	d := t.Definition()
	checkSchemas(&d)
	e := &registered{Tool: t, names: []string{d.Name}, published: d.Name, span: d.Span(), unlisted: unlisted}
	if d.TextOnly && !o.Structured {
		e.textOnly, d.Output = true, nil
	}
	if d.Dotted != "" {
		e.names = append(e.names, d.Dotted)
	}
	if o.Dotted {
		e.published = e.names[len(e.names)-1]
	}
	for _, name := range e.names {
		if b.tools[name] != nil {
			panic("mcp: two tools are named " + name)
		}
		b.tools[name] = e
	}
	e.sdk = sdk.Tool{
		Name: e.published, Title: d.Title, Description: d.Description,
		RawInputSchema: d.Input, RawOutputSchema: d.Output,
		Annotations: annotations(&d),
	}
}

// annotations returns the hints about a tool that differ from the protocol's defaults: readOnlyHint false, destructiveHint true,
// idempotentHint false, openWorldHint true. Hosts keep the list of tools in the context of their model, so what the defaults say is
// left out.
func annotations(d *tool.Definition) (a sdk.ToolAnnotation) {
	if d.ReadOnly {
		a.ReadOnlyHint = &d.ReadOnly
	}
	if !d.Destructive {
		a.DestructiveHint = &d.Destructive
	}
	if d.Idempotent {
		a.IdempotentHint = &d.Idempotent
	}
	if !d.OpenWorld {
		a.OpenWorldHint = &d.OpenWorld
	}
	return a
}

// checkSchemas panics unless the schemas of a tool have object roots.
func checkSchemas(d *tool.Definition) {
	for what, raw := range map[string]json.RawMessage{"input": d.Input, "output": d.Output} {
		var s struct {
			Type string `json:"type"`
		}
		if (raw != nil || what == "input") && (json.Unmarshal(raw, &s) != nil || s.Type != "object") {
			panic("mcp: the " + what + " schema of " + d.Name + " has no object root")
		}
	}
}

// listedTo reports whether the tool is listed to callers that may use the tools of a list; nil is all.
func (t *registered) listedTo(may []string) bool {
	if may == nil {
		return !t.unlisted
	}
	return t.in(may)
}

// instructions returns the server's description for callers that may use the tools of a list; nil is all.
func (s *Server) instructions(b *table, may []string) string {
	if s.about == nil {
		return ""
	}
	var names []string
	for name, t := range b.tools {
		if name == t.names[0] && t.listedTo(may) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return s.about(names)
}

// in reports whether list has one of the tool's names; a nil list has all.
func (t *registered) in(list []string) bool {
	return list == nil || slices.ContainsFunc(t.names, func(name string) bool { return slices.Contains(list, name) })
}

// A reply is the response to a request.
type reply struct {
	data    []byte
	code    int    // of a JSON-RPC error; 0 is none
	version string // negotiated by initialize, else ""
}

// answer serves one request and blocks until its tool returns, which should be soon after ctx ends. notify, which must not
// block, is called with notifications of the request; it is not called after answer has returned.
func (s *Server) answer(ctx context.Context, m *message, c tool.Caller, notify func([]byte)) reply {
	reports := &progress{token: m.meta.progress, send: notify}
	at := calls.TraceOf(m.meta.trace, m.meta.state)
	c.Progress, c.Trace, c.NoProgress, c.Called = reports.report, at.ID, reports.token == nil, m.tool
	b := s.now.Load()
	c.Removed = b.removed
	k := &call{message: m, caller: c, table: b}
	ctx = k.begin(tool.WithCaller(ctx, c), s, at)
	r := s.handle(ctx, k, notify)
	reports.close()
	if m.isCall() {
		k.log(ctx, s.log, r)
	}
	return r
}

// handle returns the response to a request. A panic ends this request only. notify is called with notifications of the
// protocol, before the response is returned.
func (s *Server) handle(ctx context.Context, k *call, notify func([]byte)) (r reply) {
	defer func() {
		if p := recover(); p != nil {
			s.log.ErrorContext(ctx, "panic in the protocol", "trace_id", k.caller.Trace, "panic", fmt.Sprint(p),
				"stack", string(debug.Stack()))
			r = errorReply(k.id, jsonrpc.Errorf(jsonrpc.CodeInternal, "internal error: the server's diagnostic log has the details"))
		}
	}()
	if k.isCall() {
		return s.call(ctx, k)
	}
	return s.request(k, notify)
}

// drainTimeout is how long calls may run after the client has closed the input.
const drainTimeout = 30 * time.Second
