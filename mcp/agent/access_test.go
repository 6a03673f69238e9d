package agent

import (
	"strings"
	"testing"

	"corral/internal/test/mcptest"
	"corral/job"
)

// TestRunNetwork: an agent cannot ask for a network of its own: the calls of a session share one.
func TestRunNetwork(t *testing.T) {
	x := newSuite(t, mcptest.NewFakeRunner())
	if r := call(t, &Run{x}, `{"code":"x","network":"npm"}`); !r.IsError || !strings.Contains(r.Text, `unknown argument "network"`) {
		t.Errorf("%q", r.Text)
	}
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
