package mcptest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"corral/job"
	"corral/mcp/tool"
)

// NetworkUse returns what a job used its network access for that was denied a host.
func NetworkUse() *job.NetworkUse {
	return &job.NetworkUse{
		Connections: 2, Denied: 4, BytesUp: 10, BytesDown: 2000,
		Denials: []job.NetworkDenial{{Name: "example.org", Port: 443, Why: "no rule allows it", Allow: "{host: example.org}", Count: 3}},
	}
}

// Denied is what texts have of NetworkUse, a line each.
var Denied = []string{
	"network: example.org:443 denied 3 times: no rule allows it; to allow it: {host: example.org}",
	"network: and 1 more denied",
	"ask the operator to add such a rule to network.allow of the repository in corral's configuration",
}

// CheckNetwork checks the argument network of a tool: what a request has of it, and that everything else is refused before a job is
// requested. arguments are the others that a call needs, as the members of a JSON object; fresh returns a tool with its runner.
func CheckNetwork(t *testing.T, fresh func() (tool.Tool, *FakeRunner), arguments string) {
	t.Helper()
	call := func(value string) (*job.Request, string) {
		target, f := fresh()
		ctx, cancel := context.WithCancel(AsUser(t.Context()))
		defer cancel()
		r, err := target.Call(ctx, json.RawMessage(fmt.Sprintf(`{%s,"network":%s}`, arguments, value)))
		if err != nil {
			return f.Request, err.Error()
		}
		if !r.IsError {
			return f.Request, ""
		}
		return f.Request, r.Text
	}
	for value, want := range map[string]string{
		`[]`: "", `""`: "", `"none"`: "none", `"npm"`: "npm", `"npm, pypi example.org:8443"`: "npm pypi example.org:8443",
		`["npm","*.example.org","npm"]`: "npm *.example.org",
	} {
		if r, failed := call(value); r == nil || r.Network != want || failed != "" {
			t.Errorf("network %s: %+v, %s, want %q", value, r, failed, want)
		}
	}
	for value, want := range map[string]string{
		`7`: "must be an array", `{}`: "must be an array", `[7]`: "must be a string", `"https://example.org"`: "neither a URL nor an address",
		`["npm","none"]`: "cannot be combined", `["example.org:0"]`: "the port must be",
		`"` + strings.Repeat("a.", 3000) + `"`:        "4096",
		`[` + strings.Repeat(`"npm",`, 64) + `"npm"]`: "at most 64",
	} {
		if r, failed := call(value); r != nil || !strings.Contains(failed, want) || !strings.Contains(failed, "network") {
			t.Errorf("network %.100s: %+v, %q, want an error with %q", value, r, failed, want)
		}
	}
}
