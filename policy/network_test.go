package policy

import (
	"strings"
	"testing"

	"corral/job"
)

// TestNetwork: a job has what its request asks for, or the maximum if it asks for nothing in particular; more is denied.
func TestNetwork(t *testing.T) {
	_, installed := toolchain(t, "python3")
	some := Network{Max: "npm pypi *.example.org", ByPrincipal: &Maximums{}, ByTool: map[string]string{"sandbox_exec": "pypi"}}
	some.ByPrincipal.Set(map[string]string{"user:ada": "npm api.example.org", "token:none": job.NoNetwork})
	for _, tt := range []struct {
		name            string
		network         Network
		principal, tool string
		asked           string
		want, session   string
		denied          string // part of the reason
	}{
		{"no maximum", Network{}, "user:ada", "run", "", "", "", ""},
		{"no maximum, words", Network{}, "user:ada", "run", "npm,example.org:8443", "npm example.org:8443", "", ""},
		{"no maximum, none", Network{}, "user:ada", "run", "none", "none", "", ""},
		{"maximum", some, "user:bob", "run", "", "npm pypi *.example.org", "npm pypi *.example.org", ""},
		{"less", some, "user:bob", "run", "x.example.org", "x.example.org", "npm pypi *.example.org", ""},
		{"of a principal", some, "user:ada", "run", "", "npm api.example.org", "npm api.example.org", ""},
		{"none of a principal", some, "token:none", "run", "", "none", "none", ""},
		{"of a tool", some, "user:bob", "sandbox_exec", "", "pypi", "npm pypi *.example.org", ""},
		{"nothing in common", some, "user:ada", "sandbox_exec", "", "none", "npm api.example.org", ""},
		{"none of some", some, "user:bob", "sandbox_exec", "none", "none", "npm pypi *.example.org", ""},

		{"more", some, "user:bob", "run", "npm cargo", "", "", "cargo may not be requested, only: npm pypi *.example.org"},
		{"more than the principal", some, "user:ada", "run", "pypi", "", "", "pypi may not be requested, only: npm api.example.org"},
		{"more than none", some, "token:none", "run", "npm", "", "", "no network access may be requested"},
		{"more than the tool", some, "user:bob", "sandbox_exec", "npm", "", "", "npm may not be requested, only: pypi"},
		{"no words", Network{}, "user:ada", "run", "https://example.org\n", "", "", "neither a URL nor an address"},
	} {
		rules, r := rules(), request()
		rules.Network = tt.network
		r.Principal, r.Tool, r.Network = tt.principal, tt.tool, tt.asked
		see := &asked{}
		rules.Operator = see
		d := decide(t, rules, installed, r)
		if tt.denied != "" {
			if d.Rule != "network" || len(d.Reasons) != 1 || !strings.HasPrefix(d.Reasons[0], "Requested network access: ") || !strings.Contains(d.Reasons[0], tt.denied) {
				t.Errorf("%s: %+v", tt.name, d)
			}
			continue
		}
		if !d.Allowed() || d.Spec.Network != tt.want || d.Spec.SessionNetwork != tt.session || see.q.Network != tt.want {
			t.Errorf("%s: %+v, %q; the rules see %q", tt.name, d, d.Spec.Network, see.q.Network)
		}
	}
}

// TestNetworkOfStarlark: an interpreter has no network, whatever the maximum, and a request for some is denied.
func TestNetworkOfStarlark(t *testing.T) {
	_, installed := toolchain(t, "python3")
	for asked, allowed := range map[string]bool{"": true, "none": true, "npm": false} {
		rules, r := rules(), request()
		program(&rules, &r)
		rules.Network.Max, r.Network = "npm", asked
		if d := decide(t, rules, installed, r); d.Allowed() != allowed || allowed && d.Spec.Network != job.NoNetwork {
			t.Errorf("%q: %+v", asked, d)
		}
	}
}
