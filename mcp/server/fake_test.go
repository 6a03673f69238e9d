package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"corral/internal/jsonrpc"
	"corral/mcp/tool"
)

// A fake is a tool for tests.
type fake struct {
	def  tool.Definition
	call func(ctx context.Context, arguments json.RawMessage) (tool.Result, error)
}

func (f *fake) Name() string                { return f.def.Name }
func (f *fake) Definition() tool.Definition { return f.def }
func (f *fake) Call(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
	return f.call(ctx, arguments)
}

func newFake(name string, call func(context.Context, json.RawMessage) (tool.Result, error)) *fake {
	return &fake{call: call, def: tool.Definition{
		Name: name, Dotted: "sdl." + strings.ReplaceAll(name, "_", "."), Title: "Fake " + name, Description: "a tool of a test",
		Input:    json.RawMessage(`{"type":"object","properties":{"code":{"type":"string"},"n":{"type":"number"}}}`),
		Output:   json.RawMessage(`{"type":"object","properties":{"ok":{"type":"boolean"}}}`),
		ReadOnly: true, Idempotent: true,
	}}
}

// testTools returns tools with different behaviors.
func testTools() []tool.Tool {
	return []tool.Tool{
		newFake("echo", func(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
			return tool.Result{Structured: map[string]any{
				"arguments": arguments, "session": tool.CallerOf(ctx).Session, "principal": tool.CallerOf(ctx).Principal, "trace": tool.CallerOf(ctx).Trace,
			}}, nil
		}),
		newFake("hang", func(ctx context.Context, _ json.RawMessage) (tool.Result, error) {
			tool.CallerOf(ctx).Progress(1, "hanging")
			<-ctx.Done()
			return tool.Result{}, ctx.Err()
		}),
		newFake("panics", func(context.Context, json.RawMessage) (tool.Result, error) { panic("boom") }),
		newFake("denies", func(context.Context, json.RawMessage) (tool.Result, error) {
			return tool.Result{}, &tool.Error{Code: tool.CodeDenied, Message: "no", Details: map[string]any{"why": "rule"}}
		}),
		newFake("fails", func(context.Context, json.RawMessage) (tool.Result, error) {
			return tool.Result{}, errors.New("a cable fell out")
		}),
		newFake("chatty", func(ctx context.Context, _ json.RawMessage) (tool.Result, error) {
			for n := range 20_000 {
				tool.CallerOf(ctx).Progress(float64(n), "step")
			}
			tool.CallerOf(ctx).Progress(5, "back")
			return tool.Result{Structured: map[string]any{"ok": true}}, nil
		}),
		newFake("huge", func(_ context.Context, arguments json.RawMessage) (tool.Result, error) {
			var a struct{ N int }
			_ = json.Unmarshal(arguments, &a)
			return tool.Result{Structured: map[string]any{"ok": true, "out": strings.Repeat("é", a.N/2)}}, nil
		}),
		newFake("array", func(context.Context, json.RawMessage) (tool.Result, error) {
			return tool.Result{Structured: []int{1}}, nil
		}),
		newFake("empty", func(context.Context, json.RawMessage) (tool.Result, error) { return tool.Result{}, nil }),
		newFake("image", func(context.Context, json.RawMessage) (tool.Result, error) {
			return tool.Result{Text: "an image", Whole: true, Image: &tool.Image{Type: "image/png", Data: []byte("\x89PNG")}}, nil
		}),
		newFake("text", func(context.Context, json.RawMessage) (tool.Result, error) { return tool.Result{Text: "words"}, nil }),
		newFake("explodes", func(context.Context, json.RawMessage) (tool.Result, error) {
			return tool.Result{Structured: exploding{}}, nil
		}),
		newFake("wide", func(context.Context, json.RawMessage) (tool.Result, error) {
			return tool.Result{Structured: map[string]any{"list": make([]bool, 3<<20)}}, nil
		}),
	}
}

// An exploding result panics when it is encoded.
type exploding struct{}

func (exploding) MarshalJSON() ([]byte, error) { panic("boom") }

func testServer(t *testing.T) *Server {
	t.Helper()
	return New(Options{Version: "1.2.3", Tools: testTools(), Instructions: func([]string) string { return "for tests" }})
}

// A client is the client's end of a stdio connection.
type client struct {
	t    *testing.T
	in   *io.PipeWriter
	out  *bufio.Reader
	done chan error
	stop context.CancelFunc
}

// dial serves a client through unbuffered pipes, the worst case.
func dial(t *testing.T, s *Server, c tool.Caller) *client {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	k := &client{t: t, in: inW, out: bufio.NewReaderSize(outR, 16<<20), done: make(chan error, 1), stop: stop}
	go func() { k.done <- s.ServeStdio(ctx, inR, outW, c) }()
	t.Cleanup(func() {
		stop()
		_ = inW.Close()
		_ = outR.Close()
		select {
		case err := <-k.done:
			t.Logf("ServeStdio: %v", err)
		case <-time.After(testTimeout):
			t.Error("ServeStdio did not return")
		}
	})
	return k
}

func (k *client) write(lines ...string) {
	k.t.Helper()
	for _, line := range lines {
		if _, err := io.WriteString(k.in, line+"\n"); err != nil {
			k.t.Fatal(err)
		}
	}
}

// An incoming is a message from the server.
type incoming struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Token    json.RawMessage `json:"progressToken"`
		Progress float64         `json:"progress"`
		Message  string          `json:"message"`
	} `json:"params"`
	Result struct {
		Content []struct {
			Type, Text string
		} `json:"content"`
		Structured      json.RawMessage `json:"structuredContent"`
		IsError         bool            `json:"isError"`
		ResultType      string          `json:"resultType"`
		ProtocolVersion string          `json:"protocolVersion"`
		Tools           []struct {
			Name string `json:"name"`
		} `json:"tools"`
	} `json:"result"`
	Error *jsonrpc.Error `json:"error"`
	raw   []byte
}

func (k *client) read() incoming {
	k.t.Helper()
	line, err := k.out.ReadBytes('\n')
	if err != nil {
		k.t.Fatalf("read: %v", err)
	}
	return decode(k.t, line)
}

func decode(t *testing.T, line []byte) incoming {
	t.Helper()
	var m incoming
	if err := json.Unmarshal(line, &m); err != nil {
		t.Fatalf("%v in %.200s", err, line)
	}
	m.raw = line
	return m
}

// ask sends one message and returns the next one received.
func (k *client) ask(line string) incoming {
	k.t.Helper()
	k.write(line)
	return k.read()
}

func toCall(id, name, arguments string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + name + `","arguments":` + arguments + `}}`
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}}`

func initialize(version string) string {
	return `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + version +
		`","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
}
