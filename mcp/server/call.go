package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"corral/internal/calls"
	"corral/internal/jsonrpc"
	"corral/internal/strictjson"
	"corral/mcp/tool"
)

// A call is one request and, if it is tools/call, the result of its tool.
type call struct {
	*message
	caller tool.Caller
	table  *table
	noted  *calls.Call // nil unless the request is tools/call

	result tool.Result
	code   string // code of the tool's *Error
}

// call serves tools/call.
func (s *Server) call(ctx context.Context, k *call) reply {
	if k.modern() {
		if err := k.checkModern(); err != nil {
			return errorReply(k.id, err)
		}
	}
	t := k.table.tools[k.tool]
	if t == nil || !t.in(k.caller.Tools) {
		return errorReply(k.id, jsonrpc.Errorf(jsonrpc.CodeParams, "unknown tool %q", tool.Clip(k.tool)))
	}
	k.run(ctx, s, t)
	return reply{data: k.encodeResult(s.tail(k.message))}
}

// run calls the tool and stores the outcome, including an error, in k.
func (k *call) run(ctx context.Context, s *Server, t *registered) {
	var err error
	if k.fault != nil {
		err = &tool.Error{Code: tool.CodeInvalid, Message: "invalid arguments: " + k.fault.Error()}
	} else {
		k.result, err = guard(ctx, s.log, t, k.arguments)
	}
	if e, ok := k.result.Structured.(*tool.Error); ok && err == nil {
		k.code = e.Code
	} else if err == nil {
		k.code = k.result.Code
		if t.textOnly {
			k.result.Structured = nil
		}
	}
	if err != nil {
		e := tool.AsError(err)
		if e.Code == tool.CodeInternal && !errors.Is(err, context.Canceled) {
			s.log.ErrorContext(ctx, "tool failed", "trace_id", k.caller.Trace, "tool", t.published, "error", err.Error())
		}
		k.code = e.Code
		k.result = tool.Result{Structured: e, IsError: true}
	}
}

// guard calls a tool and turns a panic into an error.
func guard(ctx context.Context, log *slog.Logger, t *registered, arguments json.RawMessage) (r tool.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			log.ErrorContext(ctx, "panic in a tool", "trace_id", tool.CallerOf(ctx).Trace, "tool", t.published,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = &tool.Error{
				Code: tool.CodeInternal, Message: "the tool failed: see the server's diagnostic log, trace_id " + tool.CallerOf(ctx).Trace,
			}
		}
	}()
	if err := ctx.Err(); err != nil {
		return tool.Result{}, fmt.Errorf("cancelled before the call started: %w", err)
	}
	return t.Call(ctx, arguments)
}

func errorReply(id json.RawMessage, e *jsonrpc.Error) reply {
	return reply{data: dialect.Error(id, e), code: e.Code}
}

func encodeAny(id json.RawMessage, result any) reply {
	raw, err := strictjson.Marshal(result)
	if err != nil {
		return errorReply(id, jsonrpc.Errorf(jsonrpc.CodeInternal, "internal error: encode the result: %v", err))
	}
	return reply{data: dialect.Result(id, raw)}
}

// log writes the call's line to the diagnostic log, without arguments and results.
func (k *call) log(ctx context.Context, log *slog.Logger, r reply) {
	code := k.code
	switch {
	case errors.Is(context.Cause(ctx), errCancelled):
		code = "CANCELLED"
	case r.code != 0:
		code = fmt.Sprint(r.code)
	}
	k.noted.End(ctx, log, len(r.data), code)
}

// begin starts the record of a tool call and returns a context that carries it.
func (k *call) begin(ctx context.Context, s *Server, at calls.Trace) context.Context {
	if !k.isCall() {
		return ctx
	}
	span := "tools.unknown" // a fixed name, because clients may send any number of different ones
	if t := k.table.tools[k.tool]; t != nil {
		span = "tools." + t.span
	}
	k.noted = calls.Begin(s.tracer, calls.Start{
		Tool: tool.Clip(k.tool), Span: span, Principal: k.caller.Principal, Session: k.caller.Session, Trace: at, At: time.Now(),
	})
	return calls.With(ctx, k.noted)
}

// refuseCall records a call that was refused before a tool was called, and returns answer.
func (s *Server) refuseCall(ctx context.Context, m *message, c tool.Caller, answer []byte, code string) []byte {
	if m.isCall() {
		k := &call{message: m, caller: c, table: s.now.Load(), code: code}
		ctx = k.begin(ctx, s, calls.TraceOf(m.meta.trace, m.meta.state))
		k.log(ctx, s.log, reply{data: answer})
	}
	return answer
}
