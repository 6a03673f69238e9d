package mcp

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	sdk "github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"corral/internal/calls"
	"corral/internal/strictjson"
)

// A call is one request on its way through mcp-go, and what its tool has to say.
type call struct {
	*message
	caller Caller
	noted  *calls.Call // nil of what is no call of a tool

	ran    bool // a tool was found
	result ToolResult
	code   string // of the tool's *Error
}

type callKey struct{}

func withCall(ctx context.Context, k *call) context.Context {
	return context.WithValue(ctx, callKey{}, k)
}

func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// run calls the tool; whatever becomes of it is in k.
func (k *call) run(ctx context.Context, s *Server, t *tool) {
	k.ran = true
	var err error
	if err = k.checkArguments(t); err == nil {
		k.result, err = guard(ctx, s.log, t, k.arguments)
	}
	if e, ok := k.result.Structured.(*Error); ok && err == nil {
		k.code = e.Code
	}
	if err != nil {
		e := fail(err)
		if e.Code == CodeInternal && !errors.Is(err, context.Canceled) {
			s.log.ErrorContext(ctx, "tool failed", "trace_id", k.caller.Trace, "tool", t.published, "error", err.Error())
		}
		k.code = e.Code
		k.result = ToolResult{Structured: e, IsError: true}
	}
}

// checkArguments sees to it that no key reaches the tool that a decoder might take for another.
func (k *call) checkArguments(t *tool) error {
	if k.fault != nil {
		return &Error{Code: CodeInvalid, Message: "the arguments: " + k.fault.Error()}
	}
	for _, e := range strictjson.Entries(k.arguments) {
		if word := misspelled(e.Key, t.keys); word != "" {
			return &Error{Code: CodeInvalid, Message: fmt.Sprintf("the argument %q is spelled %q", shown(e.Key), word)}
		}
	}
	return nil
}

// guard calls a tool, and survives it.
func guard(ctx context.Context, log *slog.Logger, t *tool, arguments json.RawMessage) (r ToolResult, err error) {
	defer func() {
		if p := recover(); p != nil {
			log.ErrorContext(ctx, "panic in a tool", "trace_id", CallerOf(ctx).Trace, "tool", t.published,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = &Error{Code: CodeInternal, Message: "the tool failed: the server's log says how, under trace " + CallerOf(ctx).Trace}
		}
	}()
	if err := ctx.Err(); err != nil {
		return ToolResult{}, fmt.Errorf("cancelled before it began: %w", err)
	}
	return t.Call(ctx, arguments)
}

// encode writes the answer: mcp-go's own words about everything but the tool's result.
func (k *call) encode(response sdk.JSONRPCMessage) reply {
	switch r := response.(type) {
	case sdk.JSONRPCResponse:
		if k.ran {
			return reply{data: k.encodeResult(r.Result)}
		}
		return encodeAny(k.id, r.Result)
	case sdk.JSONRPCError:
		e := &rpcError{Code: r.Error.Code, Message: r.Error.Message, Data: r.Error.Data}
		if k.isCall() && e.Code == codeParams && strings.HasSuffix(e.Message, server.ErrToolNotFound.Error()) {
			e.Message = fmt.Sprintf("unknown tool %q", shown(k.tool))
		}
		return reply{data: errorOf(k.id, e), code: e.Code}
	}
	return reply{data: errorOf(k.id, refused(codeInside, "the server could not answer")), code: codeInside}
}

func encodeAny(id json.RawMessage, result any) reply {
	raw, err := marshal(result)
	if err != nil {
		return reply{data: errorOf(id, refused(codeInside, "encode the result: %v", err)), code: codeInside}
	}
	return reply{data: answerOf(id, raw)}
}

// log writes the line of a call. Neither arguments nor results are in it.
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

// begin notes the beginning of a call, and returns a context that carries it.
func (k *call) begin(ctx context.Context, s *Server, at calls.Trace) context.Context {
	if !k.isCall() {
		return ctx
	}
	span := "tools.unknown" // not in the client's words, of which there may be any number
	if t := s.tools[k.tool]; t != nil {
		span = "tools." + t.span
	}
	k.noted = calls.Begin(s.tracer, calls.Start{
		Tool: shown(k.tool), Span: span, Principal: k.caller.Principal, Session: k.caller.Session, Trace: at, At: time.Now(),
	})
	return calls.With(ctx, k.noted)
}

// unserved notes a call that came to nothing before any tool was asked, and returns its answer.
func (s *Server) unserved(ctx context.Context, m *message, c Caller, answer []byte, code string) []byte {
	if m.isCall() {
		k := &call{message: m, caller: c, code: code}
		ctx = k.begin(ctx, s, calls.TraceOf(m.meta.trace, m.meta.state))
		k.log(ctx, s.log, reply{data: answer})
	}
	return answer
}

// randomHex returns n random bytes.
func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails, or ends the program: crypto/rand
	return hex.EncodeToString(b)
}
