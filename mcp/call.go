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

	"corral/internal/strictjson"
)

// A call is one request on its way through mcp-go, and what its tool has to say.
type call struct {
	*message
	caller Caller
	start  time.Time

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
	log.LogAttrs(ctx, slog.LevelInfo, "tool call",
		slog.String("trace_id", k.caller.Trace), slog.String("tool", shown(k.tool)),
		slog.String("principal", k.caller.Principal), slog.String("session", k.caller.Session),
		slog.Int64("wall_ms", time.Since(k.start).Milliseconds()), slog.Int("bytes_out", len(r.data)),
		slog.String("error", code))
}

// traceOf returns the trace id of a traceparent (W3C Trace Context, 3.2), or a new one when it is none.
func traceOf(parent string) string {
	parts := strings.Split(parent, "-")
	if len(parts) >= 4 && len(parts[0]) == 2 && len(parts[1]) == 32 && parts[1] == strings.ToLower(parts[1]) {
		id, err := hex.DecodeString(parts[1])
		if err == nil && strings.Trim(parts[1], "0") != "" && len(id) == 16 {
			return parts[1]
		}
	}
	return randomHex(16)
}

// randomHex returns n random bytes.
func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails, or ends the program: crypto/rand
	return hex.EncodeToString(b)
}
