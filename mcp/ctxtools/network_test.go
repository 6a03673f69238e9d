package ctxtools

import (
	"strings"
	"testing"

	"corral/internal/test/mcptest"
	"corral/mcp/tool"
)

// TestNetwork: the tools that run code pass on what a call asks for, and say which hosts the job was denied.
func TestNetwork(t *testing.T) {
	for _, tt := range []struct {
		name, arguments string
		tool            func(x *Suite) tool.Tool
	}{
		{"execute", `"language":"shell","code":"x"`, func(x *Suite) tool.Tool { return &Execute{x} }},
		{"execute in the background", `"language":"shell","code":"x","background":true,"timeout":60000`, func(x *Suite) tool.Tool { return &Execute{x} }},
		{"execute file", `"path":"a","language":"shell","code":"x"`, func(x *Suite) tool.Tool { return &ExecuteFile{x} }},
		{"batch", `"commands":[{"label":"a","command":"x"}]`, func(x *Suite) tool.Tool { return &BatchExecute{x} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mcptest.CheckNetwork(t, func() (tool.Tool, *mcptest.FakeRunner) {
				f := mcptest.NewFakeRunner()
				x, _ := newCtx(t, f)
				return tt.tool(x), f
			}, tt.arguments)
			f := mcptest.NewFakeRunner()
			f.Stdout, f.Result.Network = "out\n", mcptest.NetworkUse()
			x, _ := newCtx(t, f)
			_, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), tt.tool(x), "{"+tt.arguments+"}")
			if want := ", " + strings.Join(mcptest.Denied, ", "); !strings.Contains(r.Text, want) {
				t.Errorf("%q, want %q", r.Text, want)
			}
		})
	}
}
