package server

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"corral/internal/calls"
	"corral/internal/strictjson"
	"corral/internal/test/mcptest"
	"corral/mcp/tool"
)

const (
	traceOne = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	traceTwo = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
)

func TestSpanNames(t *testing.T) {
	for name, want := range map[string]string{
		"runtime_execute": "runtime.execute", "runtime_query_output": "runtime.queryOutput", "sandbox_exec": "sandbox.exec",
		"starlark_run": "starlark.run", "ctx_execute": "ctx.execute", "ctx_execute_file": "ctx.executeFile",
		"ctx_batch_execute": "ctx.batchExecute", "ctx_jobs": "ctx.jobs", "echo": "echo", "a_": "a", "a__b": "a.B",
	} {
		if got := (&tool.Definition{Name: name}).Span(); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// watchedServer returns a server whose calls w records.
func watchedServer(w *mcptest.Watcher) *Server {
	return New(Options{Version: "1", Tools: testTools(), Log: slog.New(slog.NewJSONHandler(w, nil)), Tracer: w})
}

// TestCallLines: every call has one log line with every key, and one span in the same trace.
func TestCallLines(t *testing.T) {
	w := &mcptest.Watcher{}
	k := dial(t, watchedServer(w), tool.Caller{Principal: "user:ada"})
	k.ask(initialize("2025-11-25"))
	rows := []struct{ call, span, tool, code string }{
		{toCall("1", "echo", "{}"), "tools.echo", "echo", ""},
		{toCall("2", "sdl.echo", "{}"), "tools.echo", "sdl.echo", ""},
		{toCall("3", "denies", "{}"), "tools.denies", "denies", "DENIED"},
		{toCall("4", "fails", "{}"), "tools.fails", "fails", "INTERNAL"},
		{toCall("5", "panics", "{}"), "tools.panics", "panics", "INTERNAL"},
		{toCall("6", "explodes", "{}"), "tools.explodes", "explodes", "-32603"},
		{toCall("7", "echo", `{"code":1,"code":2}`), "tools.echo", "echo", "INVALID_REQUEST"},
		{toCall("8", "nope", "{}"), "tools.unknown", "nope", "-32602"},
		{toCall("9", strings.Repeat("n", 5000), "{}"), "tools.unknown", strings.Repeat("n", tool.MaxShown) + "…", "-32602"},
	}
	for n, row := range rows {
		answer := k.ask(row.call)
		line, span := w.Call(t, n)
		for _, key := range mcptest.CallKeys {
			if _, ok := line[key]; !ok {
				t.Errorf("%.60s: the line has no %s: %v", row.call, key, line)
			}
		}
		if len(line) != len(mcptest.CallKeys) {
			t.Errorf("%.60s: unexpected keys or values: %v", row.call, line)
		}
		if line["tool"] != row.tool || line["error"] != row.code || line["principal"] != "user:ada" || line["session"] == "" {
			t.Errorf("%.60s: %v", row.call, line)
		}
		if int(line["bytes_out"].(float64)) != len(bytes.TrimSpace(answer.raw)) {
			t.Errorf("%.60s: %v bytes of %d", row.call, line["bytes_out"], len(answer.raw))
		}
		if span.Name != row.span || span.At.ID != line["trace_id"] || span.End.Error != row.code {
			t.Errorf("%.60s: %+v", row.call, span)
		}
	}
	k.ask(`{"jsonrpc":"2.0","id":10,"method":"tools/list"}`)
	k.ask(toCall("11", "echo", "{}"))
	if _, span := w.Call(t, len(rows)); span.Name != "tools.echo" {
		t.Errorf("a request other than a call has a span: %+v", span)
	}
}

// TestCallLinesOfRefusedCalls: a call that was cancelled or refused has its line, too.
func TestCallLinesOfRefusedCalls(t *testing.T) {
	w := &mcptest.Watcher{}
	k := dial(t, watchedServer(w), tool.Caller{Principal: "user:ada"})
	k.ask(initialize("2025-11-25"))
	k.write(toCall("1", "hang", "{}"), cancelled("1"))
	if line, _ := w.Call(t, 0); line["tool"] != "hang" || line["error"] != "CANCELLED" {
		t.Errorf("%v", line)
	}
	for n := range maxInFlight {
		k.write(toCall(jsonText(n), "hang", "{}"))
	}
	answer := k.ask(toCall(`"more"`, "echo", "{}"))
	if line, span := w.Call(t, 1); line["tool"] != "echo" || line["error"] != "UNAVAILABLE" || line["bytes_out"] == 0.0 || span.Name != "tools.echo" {
		t.Errorf("%v, %s", line, answer.raw)
	}
}

func jsonText(v any) string { return string(strictjson.Encode(v)) }

// TestTraceOverStdio: a call is in the client's trace if that is valid; tool, log and span agree.
func TestTraceOverStdio(t *testing.T) {
	w := &mcptest.Watcher{}
	k := dial(t, watchedServer(w), tool.Caller{Principal: "user:ada"})
	k.ask(initialize("2025-11-25"))
	for n, row := range []struct {
		meta string
		want calls.Trace
	}{
		{`"traceparent":"` + traceOne + `","tracestate":"a=1"`, calls.TraceOf(traceOne, "a=1")},
		{`"traceparent":"` + traceTwo + `"`, calls.TraceOf(traceTwo, "")},
		{``, calls.Trace{Sampled: true}},
		{`"traceparent":"00-0-0-0","tracestate":"a=1"`, calls.Trace{Sampled: true}},
		{`"traceparent":17`, calls.Trace{Sampled: true}},
	} {
		answer := k.ask(`{"jsonrpc":"2.0","id":` + jsonText(n) + `,"method":"tools/call","params":{"name":"echo","_meta":{` + row.meta + `}}}`)
		var told struct{ Trace string }
		if err := json.Unmarshal(answer.Result.Structured, &told); err != nil {
			t.Fatal(err)
		}
		line, span := w.Call(t, n)
		if row.want.ID == "" {
			row.want.ID = told.Trace
		}
		if span.At != row.want || told.Trace != row.want.ID || line["trace_id"] != row.want.ID || len(told.Trace) != 32 {
			t.Errorf("%s: span %+v, tool %s, log %v", row.meta, span.At, told.Trace, line["trace_id"])
		}
	}
}

// TestTraceOverHTTP: the message has precedence over headers, and two headers count as none.
func TestTraceOverHTTP(t *testing.T) {
	w := &mcptest.Watcher{}
	s := newHTTPSite(t, watchedServer(w), HTTPOptions{})
	session := s.open()
	for n, row := range []struct {
		meta, state string
		headers     []string
		parent      string // "": new trace
	}{
		{``, "", []string{"Traceparent", traceOne}, traceOne},
		{``, "a=1,b=2", []string{"Traceparent", traceOne, "Tracestate", "a=1", "+Tracestate", "b=2"}, traceOne},
		{`"traceparent":"` + traceTwo + `"`, "", []string{"Traceparent", traceOne, "Tracestate", "a=1"}, traceTwo},
		{`"traceparent":"x"`, "", []string{"Traceparent", traceOne}, ""},
		{``, "", []string{"Traceparent", traceOne, "+Traceparent", traceTwo}, ""},
		{``, "", nil, ""},
	} {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{` + row.meta + `}}}`
		response, answer := s.send("POST", body, append([]string{"Mcp-Session-Id", session}, row.headers...)...)
		_, span := w.Call(t, n)
		want := calls.TraceOf(row.parent, row.state)
		if row.parent == "" {
			want.ID = span.At.ID
		}
		if response.StatusCode != http.StatusOK || span.At != want || !strings.Contains(answer, want.ID) {
			t.Errorf("row %d: %+v, want %+v", n, span.At, want)
		}
	}
}
