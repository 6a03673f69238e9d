package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
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

// TestUseKey: a key that root's front-end passes is in requests to its API alone, which is allowed before everything else.
func TestUseKey(t *testing.T) {
	for _, tt := range []struct{ preset, key, want string }{
		{"anthropic", "sk-ant-0123456789\n", ""},
		{"anthropic", "short", "must be 8 to 4096"},
		{"anthropic", "two\nlines-of-it", "must be one line"},
		{"npm", "sk-ant-0123456789", "not the preset of an API"},
		{"nothing", "sk-ant-0123456789", "not the preset of an API"},
		{"openai", "sk-ant-0123456789", "rename it"},
	} {
		c := config.Default()
		c.Network = network.Rules{Allow: []network.Rule{{Preset: "anthropic"}, {Preset: "npm"}}}
		c.Secrets = map[string]config.Secret{"key-of-openai": {}}
		n := newNetworks(c)
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_, err = write.WriteString(tt.key)
		if err := errors.Join(err, write.Close()); err != nil {
			t.Fatal(err)
		}
		err = n.useKey(tt.preset, read)
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), tt.key)) {
			t.Errorf("%s %q: %v, want %q", tt.preset, tt.key, err, tt.want)
		}
		if err != nil {
			continue
		}
		rules, requests, err := n.of(config.Repo{})
		want := `{"allow":[{"host":"api.anthropic.com","secret":"key-of-anthropic"},{"preset":"npm"}]}`
		if err != nil || string(rules) != want || len(requests.Secrets) != 1 || !slices.Contains(requests.Variables, "ANTHROPIC_API_KEY") {
			t.Fatalf("%s, %+v, %v", rules, requests, err)
		}
		if s := requests.Secrets[0]; s.Value != "sk-ant-0123456789" || s.Header != "X-Api-Key" || s.Format != "{}" || !s.Body {
			t.Errorf("%+v", s)
		}
	}
}
