package policy

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"corral/job"
	"corral/policy/network"
	"corral/policy/runtimes"
)

// compiled returns the set of an operator's rules.
func compiled(t *testing.T, rules ...network.Rule) *network.Set {
	t.Helper()
	set, err := network.Compile(&network.Rules{Allow: rules})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestOnline: a job that may reach a registry has no variables that keep the package manager from it; all others have them.
func TestOnline(t *testing.T) {
	offline := map[string]string{
		"npm_config_fetch_retries": "0", "PIP_NO_INDEX": "1", "CARGO_NET_OFFLINE": "true", "GOPROXY": "off", "GOSUMDB": "",
	}
	all := []network.Rule{{Preset: "go"}, {Preset: "npm"}, {Preset: "pypi"}, {Preset: "cargo"}}
	for _, tt := range []struct {
		name    string
		rules   []network.Rule
		asked   string
		changed map[string]string
	}{
		{"no rules", nil, "", nil},
		{"another host", []network.Rule{{Host: "example.org"}}, "", nil},
		{"npm", []network.Rule{{Preset: "npm"}}, "", map[string]string{"npm_config_fetch_retries": ""}},
		{"pypi", []network.Rule{{Preset: "pypi"}}, "", map[string]string{"PIP_NO_INDEX": ""}},
		{"cargo", []network.Rule{{Preset: "cargo"}}, "", map[string]string{"CARGO_NET_OFFLINE": ""}},
		{"go", []network.Rule{{Preset: "go"}}, "", map[string]string{"GOPROXY": "https://proxy.golang.org"}},
		{"a part of all", all, "pypi", map[string]string{"PIP_NO_INDEX": ""}},
		{"none of all", all, "none", nil},
		{"what no rule has", all[:1], "npm", nil},
	} {
		_, installed := toolchain(t, "python3")
		rules, r := rules(), request()
		if tt.rules != nil {
			rules.Repos[0].Network = compiled(t, tt.rules...)
		}
		r.Network = tt.asked
		want := maps.Clone(offline)
		maps.Copy(want, tt.changed)
		got := variablesOf(decide(t, rules, installed, r).Spec.Env)
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s: %s=%s, want %q", tt.name, name, got[name], value)
			}
		}
	}
}

func variablesOf(list []string) map[string]string {
	all := map[string]string{}
	for _, pair := range list {
		name, value, _ := strings.Cut(pair, "=")
		all[name] = value
	}
	return all
}

// cached has the variables of caches.
type cached struct {
	Installed
	env []string
}

func (c cached) Caches() []string { return c.env }

// TestOnlineBesidesCaches: go takes from its cache what is there, and the other managers, which would write to theirs, have none.
func TestOnlineBesidesCaches(t *testing.T) {
	all := cached{runtimes.Installed{}, []string{
		"GOPROXY=file:///c,off", "GOSUMDB=off", "npm_config_cache=/n", "npm_config_prefer_offline=true", "npm_config_logs_max=0",
		"CARGO_HOME=/r", "CARGO_INSTALL_ROOT=/home/job/.cargo", "PIP_FIND_LINKS=file:///w",
	}}
	_, installed := toolchain(t, "python3")
	all.Installed = installed
	rules, r := rules(), request()
	rules.Repos[0].Network = compiled(t, network.Rule{Preset: "go"}, network.Rule{Preset: "npm"}, network.Rule{Preset: "cargo"})
	got := decide(t, rules, all, r).Spec.Env
	for _, want := range []string{"GOPROXY=file:///c,https://proxy.golang.org", "PIP_FIND_LINKS=file:///w", "PIP_NO_INDEX=1"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q lacks %s", got, want)
		}
	}
	for _, name := range []string{"GOSUMDB", "npm_config_cache", "npm_config_prefer_offline", "npm_config_logs_max", "CARGO_HOME", "CARGO_INSTALL_ROOT"} {
		if value, there := variablesOf(got)[name]; there {
			t.Errorf("%s=%s", name, value)
		}
	}
}

// TestNeedsNetwork: a request that needs network access is denied where it would have none.
func TestNeedsNetwork(t *testing.T) {
	_, installed := toolchain(t, "python3")
	some := compiled(t, network.Rule{Preset: "npm"})
	for _, tt := range []struct {
		name    string
		hosts   *network.Set
		most    string
		allowed bool
	}{
		{"no rules", nil, "", false},
		{"rules", some, "", true},
		{"a maximum", some, "npm", true},
		{"a maximum of none", some, job.NoNetwork, false},
	} {
		rules, r := rules(), request()
		rules.Repos[0].Network, rules.Network.Max, r.NeedsNetwork = tt.hosts, tt.most, true
		d := decide(t, rules, installed, r)
		if d.Allowed() != tt.allowed || !tt.allowed && (d.Rule != "network" || d.Reasons[0] != "Requested network access: the operator allows none for this request") {
			t.Errorf("%s: %+v", tt.name, d)
		}
	}
}
