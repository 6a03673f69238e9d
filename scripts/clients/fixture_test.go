package clients

import (
	"context"
	"encoding/json"
	"net"
	"testing"
	"time"

	"corral/mcp/server"
	"corral/mcp/tool"
)

// A fixture is a tool of the conformance suite's test server that answers in text.
type fixture struct {
	name   string
	schema string
	call   func(ctx context.Context) (tool.Result, error)
}

func (f fixture) Name() string { return f.name }

func (f fixture) Definition() tool.Definition {
	return tool.Definition{
		Name: f.name, Title: f.name, Description: "of the conformance suite", Input: json.RawMessage(f.schema), ReadOnly: true,
	}
}

func (f fixture) Call(ctx context.Context, _ json.RawMessage) (tool.Result, error) {
	return f.call(ctx)
}

// wantedSchema is the schema that the suite compares, keyword by keyword.
const wantedSchema = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
	"$defs":{"address":{"$anchor":"addressDef","type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
	"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},
		"contactMethod":{"type":"string","enum":["phone","email"]},"phone":{"type":"string"},"email":{"type":"string"}},
	"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],
	"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},
	"then":{"required":["phone"]},"else":{"required":["email"]},"additionalProperties":false}`

func fixtures() []tool.Tool {
	says := func(text string) func(context.Context) (tool.Result, error) {
		return func(context.Context) (tool.Result, error) { return tool.Result{Text: text}, nil }
	}
	const nothing = `{"type":"object","additionalProperties":false}`
	return []tool.Tool{
		fixture{"test_simple_text", nothing, says("This is a simple text response for testing.")},
		fixture{"json_schema_2020_12_tool", wantedSchema, says("ok")},
		fixture{"test_error_handling", nothing, func(context.Context) (tool.Result, error) {
			return tool.Result{}, &tool.Error{Code: tool.CodeInternal, Message: "This tool intentionally returns an error for testing"}
		}},
		fixture{"test_tool_with_progress", nothing, func(ctx context.Context) (tool.Result, error) {
			for n := range 3 {
				tool.CallerOf(ctx).Progress(float64(50*n), "working")
				time.Sleep(50 * time.Millisecond) // the suite expects a slow tool
			}
			return tool.Result{Text: "done"}, nil
		}},
	}
}

// TestConformanceOfProtocol runs the suite against the protocol alone, with the suite's own tools that answer in text. They
// reach parts of the protocol that corral's tools do not use.
func TestConformanceOfProtocol(t *testing.T) {
	needClients(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- server.New(server.Options{Version: "test", Tools: fixtures()}).Serve(ctx, l, server.HTTPOptions{
			Authenticate: func(token string) (tool.Caller, bool) { return tool.Caller{Principal: "token:suite"}, token == "suite" },
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	conformance(t, "http://"+l.Addr().String()+server.Path, "suite", "conformance-fixture.yaml")
}
