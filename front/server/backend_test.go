package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	mcpserver "corral/mcp/server"
	"corral/mcp/tool"

	"corral/front/supervisor"
	"corral/internal/config"
	"corral/internal/test/sandboxtest"
	"corral/isolate/client"
	"corral/rpc"
)

// alone returns a server of one repository whose supervisor has ended: all tools are listed, and none of them can run
// anything.
func alone(t *testing.T, c config.Config, to *sandboxtest.Output) (*Backend, *mcpserver.Server) {
	t.Helper()
	sup := supervisor.New(&client.Client{}, func() {})
	sup.Close()
	b, err := newBackend(backendOptions{Config: c, Log: slog.New(slog.NewJSONHandler(to, nil)), Supervisor: sup, Single: true})
	if err != nil {
		t.Fatal(err)
	}
	tools, agents, err := b.Tools()
	if err != nil {
		t.Fatal(err)
	}
	return b, (&serving{alone: true, names: "plain"}).newServer(b, tools, agents)
}

// An object is a JSON object.
type object = map[string]any

// A response is the answer to tools/list; the answers to other requests are not examined.
type response struct {
	Result struct{ Tools []struct{ Name string } }
}

// converse sends messages to the server after initializing it, and returns the answers.
func converse(t *testing.T, server *mcpserver.Server, messages ...string) []response {
	t.Helper()
	var out sandboxtest.Output
	in := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` +
		"\n" + strings.Join(messages, "\n") + "\n"
	if err := server.ServeStdio(t.Context(), strings.NewReader(in), &out, tool.Caller{Principal: "user:ada"}); err != nil {
		t.Fatal(err)
	}
	var list []response
	for line := range strings.Lines(out.String()) {
		var r response
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		list = append(list, r)
	}
	return list
}

// exchange sends one message to the server after initializing it, and returns the answer.
func exchange(t *testing.T, server *mcpserver.Server, message string) string {
	t.Helper()
	var out sandboxtest.Output
	if err := server.ServeStdio(t.Context(), strings.NewReader(message+"\n"), &out, tool.Caller{Principal: "user:ada"}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// callerNamed returns a caller of the exec server that may use every repository.
func callerNamed(principal string) rpc.Caller { return rpc.Caller{Principal: principal} }

// good are arguments with which each tool runs a job.
var good = map[string]object{
	"runtime_execute":   {"repoId": "app", "runtime": "shell", "code": "secret-code"},
	"sandbox_exec":      {"command": "secret-code"},
	"starlark_run":      {"source": "secret-code"},
	"ctx_execute":       {"language": "shell", "code": "secret-code"},
	"ctx_execute_file":  {"language": "shell", "code": "secret-code", "path": "file"},
	"ctx_batch_execute": {"commands": []object{{"label": "a", "command": "secret-code"}, {"label": "b", "command": "secret-code"}}, "queries": []string{"secret-query"}},
}

// TestEveryToolIsLogged checks that each call of each tool, whatever its result, has a log line with every key and a
// span, and that neither contains the call's arguments.
func TestEveryToolIsLogged(t *testing.T) {
	dir := t.TempDir()
	c := config.Default()
	c.Repos = []config.Repo{{ID: "app", Path: filepath.Join(dir, "app")}}
	c.Telemetry.Traces, c.Telemetry.File = config.TracesFile, filepath.Join(dir, "spans.json")
	if err := os.Mkdir(c.Repos[0].Path, 0o755); err != nil {
		t.Fatal(err)
	}
	var told sandboxtest.Output
	b, server := alone(t, c, &told)
	defer b.Close()
	var names []string
	for _, r := range converse(t, server, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`) {
		for _, tool := range r.Result.Tools {
			names = append(names, tool.Name)
		}
	}
	if len(names) < 5 {
		t.Fatalf("the tools are %q", names)
	}
	var messages []string
	for n, name := range names {
		arguments := good[name]
		if arguments == nil {
			arguments = object{}
		}
		raw, err := json.Marshal(object{"jsonrpc": "2.0", "id": n + 1, "method": "tools/call", "params": object{"name": name, "arguments": arguments}})
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, string(raw))
	}
	converse(t, server, messages...)
	b.Close()
	lines, spans := loggedCalls(t, told.String()), spanNames(t, c.Telemetry.File)
	for _, name := range names {
		line := lines[name]
		for _, key := range []string{"trace_id", "tool", "repo", "principal", "session", "job", "wall_ms", "bytes_out", "error"} {
			if _, ok := line[key]; !ok {
				t.Errorf("%s: the line has no %s: %v", name, key, line)
			}
		}
		if good[name] != nil && line["repo"] != "app" {
			t.Errorf("%s: %v", name, line)
		}
		if spans[fmt.Sprint(line["trace_id"])] == "" {
			t.Errorf("%s: no span of its trace", name)
		}
	}
	if len(lines) != len(names) {
		t.Errorf("%d lines for %d tools", len(lines), len(names))
	}
	text, _ := os.ReadFile(c.Telemetry.File)
	if strings.Contains(told.String(), "secret") || bytes.Contains(text, []byte("secret")) {
		t.Errorf("the call's arguments are logged:\n%s\n%s", told.String(), text)
	}
}

// loggedCalls returns the lines of calls in a diagnostic log, by tool.
func loggedCalls(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	lines := map[string]map[string]any{}
	for line := range strings.Lines(text) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if m["msg"] == "tool call" {
			lines[fmt.Sprint(m["tool"])] = m
		}
	}
	return lines
}

// spanNames returns the names of the spans of calls in a file, by trace.
func spanNames(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	spans := map[string]string{}
	for line := range strings.Lines(string(text)) {
		var span struct {
			Name        string
			SpanContext struct{ TraceID string }
		}
		if err := json.Unmarshal([]byte(line), &span); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if strings.HasPrefix(span.Name, "tools.") {
			spans[span.SpanContext.TraceID] = span.Name
		}
	}
	return spans
}
