package execute

import (
	"encoding/json"
	"strings"
	"testing"

	"corral/internal/test/mcptest"
	"corral/job"
	"corral/mcp/tool"
)

func TestExecuteNetwork(t *testing.T) {
	mcptest.CheckNetwork(t, func() (tool.Tool, *mcptest.FakeRunner) {
		f := mcptest.NewFakeRunner()
		return executeTool(f, nil), f
	}, `"repoId":"app","runtime":"shell","code":"x"`)
	f := mcptest.NewFakeRunner()
	f.Result.Network = mcptest.NetworkUse()
	reply, _ := mcptest.CallTool(t, mcptest.AsUser(t.Context()), executeTool(f, nil), `{"repoId":"app","runtime":"shell","code":"x"}`)
	const want = `{"bytesDown":2000,"bytesUp":10,"connections":2,"denials":[{"allow":"{host: example.org}","count":3,"name":"example.org","port":443,"why":"no rule allows it"}],"denied":4}`
	if got, err := json.Marshal(reply["network"]); err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
}

// TestNetworkRefused: hosts that the operator does not allow are denied, with what to do.
func TestNetworkRefused(t *testing.T) {
	f := mcptest.NewFakeRunner()
	f.Err = &job.Refusal{Step: "network", Message: "the operator allows no network access", Hint: "ask the operator"}
	reply, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), executeTool(f, nil), `{"repoId":"app","runtime":"shell","code":"x","network":"npm"}`)
	decision, _ := json.Marshal(reply["policyDecision"])
	if !r.IsError || reply["status"] != "denied" || !strings.Contains(string(decision), `"the operator allows no network access; ask the operator"`) {
		t.Errorf("%v, %s", reply, decision)
	}
}

func TestSandboxNetwork(t *testing.T) {
	mcptest.CheckNetwork(t, func() (tool.Tool, *mcptest.FakeRunner) {
		f := mcptest.NewFakeRunner()
		return sandboxTool(f), f
	}, `"command":"x"`)
	f := mcptest.NewFakeRunner()
	f.Stderr, f.Result.Network = "curl failed", mcptest.NetworkUse()
	r, err := sandboxTool(f).Call(mcptest.AsUser(t.Context()), json.RawMessage(`{"command":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	var reply sandboxReply
	if err := json.Unmarshal([]byte(r.Text), &reply); err != nil {
		t.Fatal(err)
	}
	if want := "curl failed\ncorral: " + strings.Join(mcptest.Denied, "\ncorral: ") + "\n"; reply.Stderr != want {
		t.Errorf("%q, want %q", reply.Stderr, want)
	}
}
