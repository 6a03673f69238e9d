package network

import (
	"strings"
	"testing"
	"time"
)

// TestRegistry: a rule of a registry allows GET and HEAD at all of its hosts, and says so with the decision.
func TestRegistry(t *testing.T) {
	set, err := Compile(&Rules{Allow: []Rule{
		{Preset: PyPI, Registry: PyPI, MinAge: 7 * day},
		{Preset: Debian, Registry: Debian},
		{Host: "npm.example.org", Registry: NPM, Secret: "acme", Paths: []string{"/npm/**"}},
		{Host: "npm.example.org", Methods: []string{"POST"}},
		{Host: "plain.example.org", Protocol: HTTP},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		host, method, path string
		port               uint16
		registry           string
		age                time.Duration
		allowed            bool
	}{
		{"pypi.org", "GET", "/simple/x/", 443, PyPI, 7 * day, true},
		{"files.pythonhosted.org", "HEAD", "/packages/x", 443, PyPI, 7 * day, true},
		{"pypi.org", "POST", "/simple/x/", 443, "", 0, false},
		{"deb.debian.org", "GET", "/debian/", 80, Debian, 0, true},
		{"deb.debian.org", "PUT", "/debian/", 80, "", 0, false},
		{"deb.debian.org", "GET", "/debian/", 443, Debian, 0, true},
		{"npm.example.org", "GET", "/npm/x", 443, NPM, 0, true},
		{"npm.example.org", "GET", "/other", 443, "", 0, false},
		{"npm.example.org", "POST", "/other", 443, "", 0, true},
		{"plain.example.org", "POST", "/", 80, "", 0, true},
	} {
		d := set.Request(tt.host, tt.port, tt.method, tt.path)
		if d.Allowed != tt.allowed || d.Registry != tt.registry || d.MinAge != tt.age || (d.Registry != "") != (d.Allowed && strings.Contains(d.Rule, "registry")) {
			t.Errorf("%s %s%s: %+v", tt.method, tt.host, tt.path, d)
		}
	}
	for host, want := range map[string]string{"pypi.org": HTTPS, "plain.example.org": HTTP} {
		if d := set.Name(host); d.Protocol != want {
			t.Errorf("%s: %+v, want %s", host, d, want)
		}
	}
	if d := set.Decide("deb.debian.org", 80); d.Protocol != HTTP || d.Rule != "{preset: debian, registry: debian}" {
		t.Errorf("%+v", d)
	}
	if !(&Rules{Allow: []Rule{{Host: "a.example.org"}, {Preset: NPM, Registry: NPM}}}).Registries() || (&Rules{Allow: []Rule{{Preset: NPM}}}).Registries() {
		t.Error("Registries is wrong")
	}
}

// TestCheckRegistry: what a rule can say about a registry.
func TestCheckRegistry(t *testing.T) {
	for want, r := range map[string]Rule{
		"needs `registry`":           {Host: "a.example.org", MinAge: day},
		"must be go, npm":            {Host: "a.example.org", Registry: "rubygems"},
		"must be npm, got go":        {Preset: NPM, Registry: Go},
		"GET and HEAD alone":         {Host: "a.example.org", Registry: NPM, Methods: []string{"GET"}},
		"`registry: npm` needs":      {Host: "a.example.org", Registry: NPM, Protocol: HTTP},
		"`registry: debian` needs":   {Host: "a.example.org", Registry: Debian, Protocol: TCP, Ports: []uint16{1}},
		"is not for debian":          {Preset: Debian, Registry: Debian, MinAge: day},
		"1m0s and 366d, got 1s":      {Host: "a.example.org", Registry: NPM, MinAge: time.Second},
		"1m0s and 366d, got 8808h":   {Host: "a.example.org", Registry: NPM, MinAge: 367 * day},
		"1m0s and 366d, got -24h":    {Host: "a.example.org", Registry: NPM, MinAge: -day},
		"it says host, ports":        {Preset: NPM, Registry: NPM, Secret: "x"},
		"\"preset npm\": `min_age` ": {Preset: NPM, MinAge: day},
	} {
		err := r.Check()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", r, err, want)
		}
	}
	late := Rules{Allow: []Rule{{Host: "*.npmjs.org"}, {Preset: NPM, Registry: NPM}}}
	if err := late.Check(); err == nil || !strings.Contains(err.Error(), "have no effect at port 443") {
		t.Errorf("a registry whose requests nobody sees: %v", err)
	}
	r := Rule{Host: "a.example.org", Registry: Cargo, MinAge: 36 * time.Hour}
	if got, want := r.String(), "{host: a.example.org, registry: cargo, min_age: 36h0m0s}"; got != want || r.Check() != nil {
		t.Errorf("%s, want %s, %v", got, want, r.Check())
	}
}
