package agent

import (
	"strings"
	"testing"

	"corral/internal/test/mcptest"
	"corral/job"
	"corral/mcp/tool"
)

func TestRunNetwork(t *testing.T) {
	mcptest.CheckNetwork(t, func() (tool.Tool, *mcptest.FakeRunner) {
		f := mcptest.NewFakeRunner()
		return &Run{newSuite(t, f)}, f
	}, `"code":"x"`)
}

// TestRunDenied: the footer says which hosts a job was denied. What a program says of a missing network is not news then, and is
// not true where there is one.
func TestRunDenied(t *testing.T) {
	const failed = "curl: (6) Could not resolve host: example.org\n"
	for _, tt := range []struct {
		name string
		use  *job.NetworkUse
		want string
	}{
		{"no network", nil, "there is no network here: ask the user to install or provide example.org"},
		{"denied", mcptest.NetworkUse(), strings.Join(mcptest.Denied, ", ")},
		{"allowed", &job.NetworkUse{Connections: 1}, ""},
	} {
		f := mcptest.NewFakeRunner()
		f.ExitsWith(6).Stderr = failed
		f.Result.Network = tt.use
		want := "[stderr] " + failed + "[exit 6, 1.5 s"
		if tt.want != "" {
			want += ", " + tt.want
		}
		if r := call(t, &Run{newSuite(t, f)}, `{"code":"x"}`); r.Text != want+"]" {
			t.Errorf("%s: %q, want %q]", tt.name, r.Text, want)
		}
	}
}
