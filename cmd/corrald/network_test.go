package main

import (
	"fmt"
	"strings"
	"testing"

	"corral/egress/control"
	"corral/internal/config"
	"corral/policy/network"
)

// TestSecretVariables: variables for secrets that do not fit into what a job gets are refused when the configuration is read, not with each job.
func TestSecretVariables(t *testing.T) {
	for count, want := range map[int]string{50: "", 200: `the variables for the secrets of the rules for "/repo" take more than 6144 bytes`} {
		c := config.Default()
		c.Network = network.Rules{Allow: []network.Rule{{Host: "example.org", Secret: "s"}}}
		var names []string
		for n := range count {
			names = append(names, fmt.Sprintf("TOKEN_%03d", n))
		}
		c.Secrets = map[string]config.Secret{"s": {Env: names}}
		n := newNetworks(c)
		n.read["s"] = control.Secret{Name: "s", Value: "value"}
		_, requests, err := n.of(config.Repo{Path: "/repo"})
		switch {
		case want == "" && (err != nil || len(requests.Variables) != count+1):
			t.Errorf("%d variables: %v, %v", count, requests, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%d variables: %v", count, err)
		}
	}
}
