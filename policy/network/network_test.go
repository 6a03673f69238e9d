package network

import (
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// example has a rule of each kind.
var example = Rules{
	Allow: []Rule{
		{Preset: "npm"},
		{Host: "*.example.org"},
		{Host: "db.example.org", Ports: []uint16{443, 5432}, Protocol: TCP},
		{Host: "old.example.com", Protocol: HTTP},
		{Host: "registry", Ports: []uint16{5000}},
	},
	Deny:    []string{"telemetry.example.org", "*.private.example.org"},
	Private: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8")},
	Bytes:   Bytes{Up: 50 << 20, Down: 2 << 30},
}

func compile(t testing.TB, r Rules) *Set {
	t.Helper()
	s, err := Compile(&r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEncode(t *testing.T) {
	const want = `{"allow":[{"preset":"npm"},{"host":"*.example.org"},{"host":"db.example.org","ports":[443,5432],"protocol":"tcp"},` +
		`{"host":"old.example.com","protocol":"http"},{"host":"registry","ports":[5000]}],"deny":["telemetry.example.org","*.private.example.org"],` +
		`"private":["10.1.0.0/16","fd00::/8"],"bytes":{"up":52428800,"down":2147483648}}`
	data, err := Encode(&example)
	if err != nil || string(data) != want {
		t.Errorf("%s, %v, want %s", data, err, want)
	}
	if back, err := Decode(data); err != nil || !reflect.DeepEqual(*back, example) {
		t.Errorf("%+v, %v", back, err)
	}
	if data, err := Encode(&Rules{}); err != nil || string(data) != "{}" {
		t.Errorf("no rules: %s, %v", data, err)
	}
	if _, err := Encode(&Rules{Deny: []string{"*"}}); err == nil {
		t.Error("encoded invalid rules")
	}
	large := Rules{}
	for i := range MaxRules {
		large.Deny = append(large.Deny, strings.Repeat("a.", 100)+strings.Repeat("b", 1+i%50))
	}
	if data, err := Encode(&large); err == nil || !strings.Contains(err.Error(), "the maximum is 49152") {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

func TestDecodeMalformed(t *testing.T) {
	for _, data := range []string{
		``, `null`, `[]`, `7`, `{`, `{} `, `{}{}`, `{"allow":[]}`, `{"allow":null}`, `{"Allow":[{"host":"a.b"}]}`, `{"more":1}`,
		`{"deny":["a.b"],"deny":["c.d"]}`, `{"allow":[{"host":"a.b","more":1}]}`, `{"allow":[{"host":"a.b","ports":[1.0]}]}`,
		`{"allow":[{"host":"a.b","ports":[65536]}]}`, `{"private":["10.0.0.0"]}`, `{"private":["fd00:0::/8"]}`, `{"bytes":{"up":0}}`,
		`{"bytes":{}}`, `{"bytes":{"up":9223372036854775808}}`, `{"deny":["\u0061.b"]}`,
		`{"deny":["` + strings.Repeat("a", MaxSize) + `"]}`,
	} {
		if r, err := Decode([]byte(data)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%.60s: %+v, %v", data, r, err)
		}
	}
	if _, err := Decode([]byte(`{"deny":["*"]}`)); err == nil || !strings.Contains(err.Error(), "entry 1 of deny") {
		t.Errorf("invalid rules: %v", err)
	}
}

func TestCheckHost(t *testing.T) {
	for _, good := range []string{
		"example.org", "*.example.org", "*.co.uk", "localhost", "a_b._tcp.example.org", "xn--bcher-kva.example", "1.example.org", "3com.com",
		"a.0y", strings.Repeat("a", 63) + ".org", strings.Repeat("a.", 126) + "b", "*." + strings.Repeat("a.", 126) + "b",
	} {
		if err := CheckHost(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		"":                               "the name is empty",
		"*.":                             "the name is empty",
		"*":                              "every host",
		"*.org":                          "at least two labels",
		"a.*.org":                        "only be the first label",
		"*.*.example.org":                "only be the first label",
		"*example.org":                   "only be the first label",
		"Example.org":                    "lower case",
		"example.org.":                   "without the final dot",
		"example.org:443":                "the port",
		"https://example.org":            "neither a URL",
		"example.org/path":               "neither a URL",
		"me@example.org":                 "neither a URL",
		"::1":                            "nor an address",
		"[::1]":                          "nor an address",
		"127.0.0.1":                      "an address cannot be allowed",
		"127.1":                          "an address cannot be allowed",
		"2130706433":                     "an address cannot be allowed",
		"0x7f000001":                     "an address cannot be allowed",
		"1.0x":                           "an address cannot be allowed",
		"*.0.1":                          "an address cannot be allowed",
		"a..b":                           "between the dots",
		".example.org":                   "between the dots",
		strings.Repeat("a", 64) + ".org": "between the dots",
		strings.Repeat("a.", 126) + "bb": "at most 253 bytes",
		"-a.example.org":                 "a dash",
		"a-.example.org":                 "a dash",
		"bücher.example":                 "ASCII form",
		"a b.example.org":                "letters, digits",
		"a\x00.example.org":              "letters, digits",
	} {
		if err := CheckHost(bad); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 500 {
			t.Errorf("%q: %v, want %q", bad, err, want)
		}
	}
}

func TestCheck(t *testing.T) {
	if err := example.Check(); err != nil {
		t.Error(err)
	}
	allow := func(r Rule) Rules { return Rules{Allow: []Rule{{Host: "example.org"}, r}} }
	private := func(s string) Rules { return Rules{Private: []netip.Prefix{netip.MustParsePrefix(s)}} }
	ports := make([]uint16, MaxPorts+1)
	for i := range ports {
		ports[i] = uint16(i + 1)
	}
	for want, r := range map[string]Rules{
		"allow has 257 entries":                                            {Allow: make([]Rule, MaxRules+1)},
		"deny has 257 entries":                                             {Deny: make([]string, MaxRules+1)},
		"private has 257 entries":                                          {Private: make([]netip.Prefix, MaxRules+1)},
		"entry 2 of allow: must have `host`":                               allow(Rule{}),
		"entry 2 of allow: must have `host` or":                            allow(Rule{Ports: []uint16{1}}),
		"entry 2 of allow: \"*\"":                                          allow(Rule{Host: "*"}),
		"entry 2 of allow: \"npm\" is a preset":                            allow(Rule{Host: "npm"}),
		"entry 2 of allow: \"none\" cannot be a host":                      allow(Rule{Host: "none"}),
		"entry 2 of allow: unknown preset \"pip\": must be one of go, npm": allow(Rule{Preset: "pip"}),
		"entry 2 of allow: preset \"npm\": it says host":                   allow(Rule{Preset: "npm", Host: "a.b"}),
		"preset \"go\": it says host":                                      allow(Rule{Preset: "go", Ports: []uint16{1}}),
		"preset \"pypi\": it says host":                                    allow(Rule{Preset: "pypi", Protocol: TLS}),
		"`protocol` must be tls, http or tcp, got \"udp\"":                 allow(Rule{Host: "a.b", Protocol: "udp"}),
		"\"a.b\": `protocol: tcp` needs `ports`":                           allow(Rule{Host: "a.b", Protocol: TCP}),
		"has 65 ports, the maximum is 64":                                  allow(Rule{Host: "a.b", Ports: ports}),
		"between 1 and 65535, got 0":                                       allow(Rule{Host: "a.b", Ports: []uint16{1, 0}}),
		"duplicate port 7":                                                 allow(Rule{Host: "a.b", Ports: []uint16{7, 8, 7}}),
		"entry 2 of deny: \"example.org:1\"":                               {Deny: []string{"a.b", "example.org:1"}},
		"entry 1 of private: must be a network":                            {Private: make([]netip.Prefix, 1)},
		"must be a network of IPv4 or IPv6":                                private("::ffff:10.0.0.0/104"),
		"write 10.1.0.0/16":                                                private("10.1.0.1/16"),
		"0.0.0.0/0 is too large":                                           private("0.0.0.0/0"),
		"10.0.0.0/7 is too large":                                          private("10.0.0.0/7"),
		"fc00::/6 is too large":                                            private("fc00::/6"),
		"bytes: up and down must not be negative, got -1":                  {Bytes: Bytes{Up: -1}},
		"must not be negative, got 0 and -2":                               {Bytes: Bytes{Down: -2}},
	} {
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if s, err := Compile(&r); err == nil {
			t.Errorf("compiled to %+v, want %q", s, want)
		}
	}
	for _, good := range []Rules{
		{},
		{Private: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("203.0.113.5/32")}},
		allow(Rule{Host: "a.b", Ports: ports[:MaxPorts]}), allow(Rule{Host: "localhost", Protocol: TLS}),
		{Allow: slices.Repeat([]Rule{{Preset: "go"}}, MaxRules)},
	} {
		if err := good.Check(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
}

func TestDecide(t *testing.T) {
	s := compile(t, example)
	const free = "host: \"*.example.org\""
	for _, tt := range []struct {
		name string
		port uint16
		want Decision
	}{
		{"registry.npmjs.org", 443, Decision{Allowed: true, Rule: "preset: npm", Protocol: TLS}},
		{"a.example.org", 443, Decision{Allowed: true, Rule: free, Protocol: TLS}},
		{"c.b.a.example.org", 443, Decision{Allowed: true, Rule: free, Protocol: TLS}},
		{"db.example.org", 443, Decision{Allowed: true, Rule: free, Protocol: TLS}}, // the first rule says the protocol
		{"db.example.org", 5432, Decision{Allowed: true, Rule: "{host: db.example.org, ports: [443, 5432], protocol: tcp}", Protocol: TCP}},
		{"old.example.com", 80, Decision{Allowed: true, Rule: "{host: old.example.com, protocol: http}", Protocol: HTTP}},
		{"registry", 5000, Decision{Allowed: true, Rule: "{host: \"registry\", ports: [5000]}", Protocol: TLS}},

		{"example.org", 443, Decision{Why: "no rule allows example.org", Allow: "- host: example.org"}},
		{"badexample.org", 443, Decision{Why: "no rule allows badexample.org", Allow: "- host: badexample.org"}},
		{"example.org.evil.com", 443, Decision{Why: "no rule allows example.org.evil.com", Allow: "- host: example.org.evil.com"}},
		{"evil.com", 80, Decision{Why: "no rule allows evil.com", Allow: "- {host: evil.com, protocol: http}"}},
		{"evil.com", 8080, Decision{Why: "no rule allows evil.com", Allow: "- {host: evil.com, ports: [8080], protocol: http}"}},
		{"evil.com", 8443, Decision{Why: "no rule allows evil.com", Allow: "- {host: evil.com, ports: [8443]}"}},
		{"evil.com", 22, Decision{Why: "no rule allows evil.com", Allow: "- {host: evil.com, ports: [22], protocol: tcp}"}},
		{"pypi.org", 443, Decision{Why: "no rule allows pypi.org", Allow: "- preset: pypi"}},
		{"deb.debian.org", 80, Decision{Why: "no rule allows deb.debian.org", Allow: "- preset: debian"}},
		{"deb.debian.org", 81, Decision{Why: "no rule allows deb.debian.org", Allow: "- {host: deb.debian.org, ports: [81], protocol: tcp}"}},
		{"db.example.org", 22, Decision{Why: "no rule allows port 22 of db.example.org, only 443, 5432", Allow: "- {host: db.example.org, ports: [22], protocol: tcp}"}},
		{"old.example.com", 443, Decision{Why: "no rule allows port 443 of old.example.com, only 80", Allow: "- host: old.example.com"}},
		{"go", 443, Decision{Why: "no rule allows go"}}, // a preset's name cannot be a host's

		{"telemetry.example.org", 443, Decision{Rule: "deny: telemetry.example.org", Why: "the operator denies telemetry.example.org"}},
		{"telemetry.example.org", 22, Decision{Rule: "deny: telemetry.example.org", Why: "the operator denies telemetry.example.org"}},
		{"a.b.private.example.org", 443, Decision{Rule: "deny: \"*.private.example.org\"", Why: "the operator denies *.private.example.org"}},
		{"private.example.org", 443, Decision{Allowed: true, Rule: free, Protocol: TLS}},
		{"below.telemetry.example.org", 443, Decision{Allowed: true, Rule: free, Protocol: TLS}},

		{"a.example.org", 0, Decision{Why: "port 0 cannot be connected to"}},
	} {
		if got := s.Decide(tt.name, tt.port); got != tt.want {
			t.Errorf("%s:%d:\n got %+v,\nwant %+v", tt.name, tt.port, got, tt.want)
		}
		if tt.port == 0 {
			continue
		}
		if looked := s.Name(tt.name); tt.want.Allowed && !looked.Allowed || tt.want.Rule != "" && !tt.want.Allowed && looked.Allowed {
			t.Errorf("%s: %+v", tt.name, looked)
		}
	}
	for _, bad := range []string{"", "A.example.org", "a.example.org.", "*.example.org", "127.0.0.1", "a b.example.org", strings.Repeat("a.", 200) + "example.org"} {
		d, looked := s.Decide(bad, 443), s.Name(bad)
		if d.Allowed || looked.Allowed || d.Allow+looked.Allow != "" || !strings.Contains(d.Why, "is not the name of a host") || len(d.Why) > 500 {
			t.Errorf("%q: %+v, %+v", bad, d, looked)
		}
		if ports := s.Ports(bad); ports != nil {
			t.Errorf("%q has ports %v", bad, ports)
		}
	}
}

func TestName(t *testing.T) {
	s := compile(t, example)
	for name, want := range map[string]Decision{
		"db.example.org":        {Allowed: true, Rule: "host: \"*.example.org\"", Protocol: TLS},
		"old.example.com":       {Allowed: true, Rule: "{host: old.example.com, protocol: http}", Protocol: HTTP},
		"evil.com":              {Why: "no rule allows evil.com", Allow: "- host: evil.com"},
		"static.crates.io":      {Why: "no rule allows static.crates.io", Allow: "- preset: cargo"},
		"telemetry.example.org": {Rule: "deny: telemetry.example.org", Why: "the operator denies telemetry.example.org"},
	} {
		if got := s.Name(name); got != want {
			t.Errorf("%s:\n got %+v,\nwant %+v", name, got, want)
		}
	}
	for _, s := range []*Set{compile(t, Rules{}), new(Set)} {
		if d := s.Name("example.org"); d.Allowed {
			t.Errorf("no rules: %+v", d)
		}
	}
	if s, err := Compile(nil); err != nil || s.Name("example.org").Allowed {
		t.Errorf("nil rules: %+v, %v", s, err)
	}
}

func TestPorts(t *testing.T) {
	s := compile(t, example)
	for name, want := range map[string][]Port{
		"db.example.org":        {{443, TLS}, {5432, TCP}},
		"a.example.org":         {{443, TLS}},
		"old.example.com":       {{80, HTTP}},
		"telemetry.example.org": nil,
		"evil.com":              nil,
	} {
		if got := s.Ports(name); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	debian := compile(t, Rules{Allow: []Rule{{Preset: "debian"}}})
	if got := debian.Ports("deb.debian.org"); !slices.Equal(got, []Port{{80, HTTP}, {443, TLS}}) {
		t.Errorf("deb.debian.org: %v", got)
	}
}

func TestNarrow(t *testing.T) {
	all := example
	all.Allow = append(slices.Clone(all.Allow), Rule{Preset: "debian"})
	s := compile(t, all)
	for _, tt := range []struct {
		ask     string
		allowed string // connections
		denied  string
	}{
		{"", "a.example.org:443 db.example.org:5432 registry.npmjs.org:443", "telemetry.example.org:443 evil.com:443"},
		{" \t,", "a.example.org:443 db.example.org:5432 registry.npmjs.org:443", "telemetry.example.org:443"},
		{"none", "", "a.example.org:443 db.example.org:5432 registry.npmjs.org:443"},
		{"npm", "registry.npmjs.org:443", "registry.npmjs.org:80 a.example.org:443"},
		{"npm,debian", "registry.npmjs.org:443 deb.debian.org:80 deb.debian.org:443", "a.example.org:443"},
		{"deb.debian.org:443", "deb.debian.org:443", "deb.debian.org:80 security.debian.org:443"},
		{"a.example.org", "a.example.org:443", "b.example.org:443 x.a.example.org:443 registry.npmjs.org:443"},
		{"*.example.org", "a.example.org:443 db.example.org:5432", "telemetry.example.org:443 registry.npmjs.org:443"},
		{"*.a.example.org", "b.a.example.org:443", "a.example.org:443 b.example.org:443"},
		{"*.npmjs.org", "registry.npmjs.org:443", "www.npmjs.org:443"},
		{"db.example.org:5432 registry:5000", "db.example.org:5432 registry:5000", "db.example.org:443"},
		{"*.example.org:5432", "db.example.org:5432", "db.example.org:443 a.example.org:5432"},
	} {
		n, err := s.Narrow(tt.ask)
		if err != nil {
			t.Errorf("%q: %v", tt.ask, err)
			continue
		}
		for _, place := range strings.Fields(tt.allowed) {
			name, port := parts(place)
			if d := n.Decide(name, port); !d.Allowed || d != s.Decide(name, port) || !n.Name(name).Allowed {
				t.Errorf("%q: %s: %+v", tt.ask, place, d)
			}
		}
		for _, place := range strings.Fields(tt.denied) {
			if d := n.Decide(parts(place)); d.Allowed || d.Why == "" {
				t.Errorf("%q: %s: %+v", tt.ask, place, d)
			}
		}
	}
}

func parts(place string) (name string, port uint16) {
	name, number, _ := strings.Cut(place, ":")
	port, _ = parsePort(number)
	return name, port
}

// TestNarrowAllows: what a word leaves out is denied for another reason than what no rule allows.
func TestNarrowAllows(t *testing.T) {
	s := compile(t, example)
	n, err := s.Narrow("npm  db.example.org:5432")
	if err != nil {
		t.Fatal(err)
	}
	none, err := s.Narrow("none")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		set  *Set
		name string
		port uint16
		want Decision
	}{
		{n, "a.example.org", 443, Decision{Rule: "host: \"*.example.org\"", Why: `a.example.org is allowed, but the job asked for "npm db.example.org:5432" alone`}},
		{n, "db.example.org", 443, Decision{Rule: "host: \"*.example.org\"", Why: `db.example.org is allowed, but the job asked for "npm db.example.org:5432" alone`}},
		{n, "evil.com", 443, Decision{Why: "no rule allows evil.com", Allow: "- host: evil.com"}},
		{n, "telemetry.example.org", 443, Decision{Rule: "deny: telemetry.example.org", Why: "the operator denies telemetry.example.org"}},
		{none, "a.example.org", 443, Decision{Rule: "host: \"*.example.org\"", Why: "the job asked for no network access"}},
	} {
		if got := tt.set.Decide(tt.name, tt.port); got != tt.want {
			t.Errorf("%s:%d:\n got %+v,\nwant %+v", tt.name, tt.port, got, tt.want)
		}
	}
	if got := n.Ports("db.example.org"); !slices.Equal(got, []Port{{5432, TCP}}) {
		t.Errorf("ports %v", got)
	}
}

// TestNarrowTwice: a second narrowing takes away from the first, and cannot give back.
func TestNarrowTwice(t *testing.T) {
	s := compile(t, example)
	once, err := s.Narrow("*.a.example.org npm")
	if err != nil {
		t.Fatal(err)
	}
	twice, err := once.Narrow("*.example.org")
	if err != nil || !twice.Decide("b.a.example.org", 443).Allowed || twice.Decide("b.example.org", 443).Allowed || twice.Decide("registry.npmjs.org", 443).Allowed {
		t.Errorf("%+v, %v", twice, err)
	}
	if !once.Decide("registry.npmjs.org", 443).Allowed {
		t.Error("the first narrowing changed")
	}
	for ask, want := range map[string]string{
		"b.example.org": `b.example.org is requested, but network access was requested before for "*.a.example.org npm" alone`,
		"evil.com":      "no rule allows evil.com\nhint: ",
	} {
		if n, err := once.Narrow(ask); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %+v, %v", ask, n, err)
		}
	}
	none, err := once.Narrow("none")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := none.Narrow("npm"); err == nil || !strings.Contains(err.Error(), `requested before for "*.a.example.org npm" and then "none" alone`) {
		t.Errorf("%+v, %v", n, err)
	}
}

func TestNarrowErrors(t *testing.T) {
	s := compile(t, example)
	const hint = "\nhint: the operator can add to `network.allow`: "
	for ask, want := range map[string]string{
		"evil.com":                             "no rule allows evil.com" + hint + "- host: evil.com",
		"npm evil.com:22":                      "no rule allows evil.com:22" + hint + "- {host: evil.com, ports: [22], protocol: tcp}",
		"*.evil.com":                           "no rule allows *.evil.com" + hint + "- host: \"*.evil.com\"",
		"go":                                   "no rule allows go" + hint + "- preset: go",
		"pypi.org":                             "no rule allows pypi.org" + hint + "- preset: pypi",
		"a.example.org:22":                     "no rule allows a.example.org:22" + hint,
		"example.org":                          "no rule allows example.org" + hint + "- host: example.org",
		"telemetry.example.org":                "telemetry.example.org is requested, but the operator denies telemetry.example.org",
		"x.private.example.org":                "x.private.example.org is requested, but the operator denies *.private.example.org",
		"*.x.private.example.org:443":          "*.x.private.example.org:443 is requested, but the operator denies *.private.example.org",
		"none npm":                             `the requested network access has "none" and other words`,
		"npm,none":                             `the requested network access has "none" and other words`,
		"*":                                    `the requested network access: "*" would be every host`,
		"Example.org":                          "lower case",
		"127.0.0.1":                            "an address cannot be allowed",
		"a.example.org:":                       `"a.example.org:": the port must be a number`,
		"a.example.org:0":                      "the port must be a number between 1 and 65535",
		"a.example.org:65536":                  "the port must be a number",
		"a.example.org:+1":                     "the port must be a number",
		"a.example.org:0443":                   "the port must be a number",
		"a.example.org:https":                  "the port must be a number",
		"a.example.org:1:2":                    "nor an address",
		"[::1]:443":                            "nor an address",
		"https://a.example.org":                "neither a URL",
		strings.Repeat("npm ", MaxAsked+1):     "has 65 words, the maximum is 64",
		strings.Repeat("n", MaxAsk+1):          "has 4097 bytes, the maximum is 4096",
		strings.Repeat("\xff", MaxAsk):         "the requested network access",
		strings.Repeat("a.", 200) + "b:" + "1": "at most 253 bytes",
	} {
		if n, err := s.Narrow(ask); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 1500 {
			t.Errorf("%.60q: %+v, %v, want %q", ask, n, err, want)
		}
	}
	if _, err := s.Narrow(strings.Repeat("npm ", MaxAsked)); err != nil {
		t.Error(err)
	}
	if _, err := compile(t, Rules{}).Narrow("none"); err != nil {
		t.Errorf("none of nothing: %v", err)
	}
}

// TestDenyTakesPrecedence: the order of entries does not matter, nor whether a preset or an exact name allows the host.
func TestDenyTakesPrecedence(t *testing.T) {
	for _, r := range []Rules{
		{Allow: []Rule{{Host: "registry.npmjs.org"}}, Deny: []string{"registry.npmjs.org"}},
		{Allow: []Rule{{Preset: "npm"}}, Deny: []string{"*.npmjs.org"}},
		{Allow: []Rule{{Host: "*.npmjs.org"}, {Preset: "npm"}}, Deny: []string{"evil.com", "registry.npmjs.org"}},
	} {
		s := compile(t, r)
		if s.Decide("registry.npmjs.org", 443).Allowed || s.Name("registry.npmjs.org").Allowed || s.Ports("registry.npmjs.org") != nil {
			t.Errorf("%+v allows it", r)
		}
		if _, err := s.Narrow("npm"); err == nil {
			t.Errorf("%+v: narrowed to what is denied", r)
		}
	}
}

func TestPresets(t *testing.T) {
	want := map[string][]string{
		"go":     {"proxy.golang.org:443", "sum.golang.org:443"},
		"npm":    {"registry.npmjs.org:443"},
		"pypi":   {"pypi.org:443", "files.pythonhosted.org:443"},
		"cargo":  {"index.crates.io:443", "static.crates.io:443"},
		"debian": {"deb.debian.org:80", "deb.debian.org:443", "security.debian.org:80", "security.debian.org:443"},
		"github-read": {
			"github.com:443", "github.com:443", "api.github.com:443", "codeload.github.com:443", "raw.githubusercontent.com:443",
			"objects.githubusercontent.com:443", "release-assets.githubusercontent.com:443",
		},
		"anthropic": {"api.anthropic.com:443"},
		"openai":    {"api.openai.com:443"},
		"google-ai": {"generativelanguage.googleapis.com:443"},
		"github-copilot": {
			"api.githubcopilot.com:443", "api.individual.githubcopilot.com:443", "api.business.githubcopilot.com:443",
			"api.enterprise.githubcopilot.com:443", "api.github.com:443",
		},
		"openrouter": {"openrouter.ai:443"},
	}
	for _, p := range Presets() {
		s := compile(t, Rules{Allow: []Rule{{Preset: p.Name}}})
		for _, place := range want[p.Name] {
			if d := s.Decide(parts(place)); !d.Allowed || d.Rule != "preset: "+p.Name {
				t.Errorf("%s: %s: %+v", p.Name, place, d)
			}
		}
		if err := (&Rules{Allow: p.Rules}).Check(); err != nil || len(p.Rules) != len(want[p.Name]) || p.About == "" {
			t.Errorf("%+v, %v", p, err)
		}
		delete(want, p.Name)
		p.Rules[0].Host = "changed.example"
	}
	if len(want) > 0 || Presets()[0].Rules[0].Host == "changed.example" {
		t.Errorf("missing: %v, or the table was changed", want)
	}
}

// TestSuggestions: the rule that a denial names is valid and allows what was denied.
func TestSuggestions(t *testing.T) {
	for _, host := range []string{"evil.com", "*.evil.com", "no", "1.e3", "_a.b", "npm", "none", "registry.npmjs.org", "localhost"} {
		p, err := parsePattern(host)
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range []uint16{0, 22, 80, 443, 8000, 8080, 8443, 65535} {
			rule := wouldAllow(p, port)
			if err := rule.Check(); err != nil {
				if got := suggestion(p, port); got != "" || host != "npm" && host != "none" {
					t.Errorf("%s:%d: %s, %v", host, port, got, err)
				}
				continue
			}
			n, err := compile(t, Rules{Allow: []Rule{rule}}).Narrow(host)
			if err != nil || n == nil {
				t.Errorf("%s:%d: %s: %v", host, port, rule, err)
			}
		}
	}
}

func TestParseRule(t *testing.T) {
	for _, tt := range []struct {
		word, protocol string
		want           string // the rule, or an error after "error: "
	}{
		{"npm", "", "preset: npm"},
		{"npm", TLS, "error: preset \"npm\": it says host"},
		{"registry.npmjs.org", "", "host: registry.npmjs.org"},
		{"*.example.org", "", "host: \"*.example.org\""},
		{"a.b:443", "", "host: a.b"},
		{"a.b:443", TCP, "{host: a.b, ports: [443], protocol: tcp}"},
		{"a.b:80", "", "{host: a.b, protocol: http}"},
		{"a.b:8443", "", "{host: a.b, ports: [8443]}"},
		{"a.b:22", "", "{host: a.b, ports: [22], protocol: tcp}"},
		{"a.b:22", TLS, "{host: a.b, ports: [22], protocol: tls}"},
		{"a.b", HTTP, "{host: a.b, protocol: http}"},
		{"a.b", TCP, "error: \"a.b\": `protocol: tcp` needs `ports`"},
		{"a.b", "udp", "error: must be tls, http or tcp"},
		{"none", "", "error: \"none\" cannot be a host"},
		{"a.b:0", "", "error: \"a.b:0\": the port must be"},
		{"https://a.b", "", "error: neither a URL"},
		{"", "", "error: the name is empty"},
	} {
		got, err := ParseRule(tt.word, tt.protocol)
		if want, fails := strings.CutPrefix(tt.want, "error: "); fails != (err != nil) || fails && !strings.Contains(err.Error(), want) || !fails && got.String() != tt.want {
			t.Errorf("%q, %q: %s, %v, want %s", tt.word, tt.protocol, got, err, tt.want)
		}
	}
}

func TestParseHost(t *testing.T) {
	for s, port := range map[string]uint16{"example.org": 0, "localhost": 0, "example.org:443": 443} {
		name, got, err := ParseHost(s)
		if host, _, _ := strings.Cut(s, ":"); name != host || got != port || err != nil {
			t.Errorf("%s: %s, %d, %v", s, name, got, err)
		}
	}
	for s, want := range map[string]string{
		"": "the name is empty", "*.example.org": "a wildcard", "example.org:": "the port must be", "example.org:x": "the port must be",
		"a.b:1:2": "the port must be", "[::1]:1": "neither a URL", "127.0.0.1:80": "an address", "npm.": "final dot",
	} {
		if name, port, err := ParseHost(s); err == nil || !strings.Contains(err.Error(), want) || name != "" || port != 0 {
			t.Errorf("%q: %s, %d, %v, want %q", s, name, port, err, want)
		}
	}
}

// FuzzSet: whatever the rules and words are, a narrowed set allows nothing that the rules do not, what is denied is never
// allowed, and all ways to ask agree.
func FuzzSet(f *testing.F) {
	data, err := json.Marshal(example)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data, "npm db.example.org:5432", "*.example.org", "db.example.org", uint16(5432))
	f.Add(data, "*.a.example.org", "", "b.a.example.org", uint16(443))
	f.Add([]byte(`{"allow":[{"host":"*.a.b"},{"host":"c.a.b","ports":[7],"protocol":"tcp"}],"deny":["*.c.a.b"]}`), "*.c.a.b", "none", "d.c.a.b", uint16(7))
	f.Fuzz(func(t *testing.T, data []byte, first, second, name string, port uint16) {
		var r Rules
		if json.Unmarshal(data, &r) != nil {
			return
		}
		s, err := Compile(&r)
		if err != nil {
			return
		}
		undenied := r
		undenied.Deny = nil
		open := compile(t, undenied)
		wide := s
		for _, ask := range []string{"", first, second} {
			narrow, err := wide.Narrow(ask)
			if err != nil {
				continue
			}
			checkSet(t, &r, wide, narrow, open, name, port)
			wide = narrow
		}
	})
}

func checkSet(t *testing.T, r *Rules, wide, narrow, open *Set, name string, port uint16) {
	t.Helper()
	got := narrow.Decide(name, port)
	denied := slices.ContainsFunc(r.Deny, func(d string) bool {
		below, is := strings.CutPrefix(d, "*")
		return d == name || is && strings.HasSuffix(name, below)
	})
	switch {
	case got.Allowed && !wide.Decide(name, port).Allowed:
		t.Errorf("%s:%d: %+v, but not of the wider set", name, port, got)
	case got.Allowed && !open.Decide(name, port).Allowed:
		t.Errorf("%s:%d: an entry of deny allows it", name, port)
	case got.Allowed && denied:
		t.Errorf("%s:%d: %+v, but it is denied", name, port, got)
	case got.Allowed && !narrow.Name(name).Allowed:
		t.Errorf("%s may be connected to and not looked up", name)
	case got.Allowed == (got.Why != "") || got.Allowed != (got.Protocol != ""):
		t.Errorf("%+v", got)
	}
	ports := narrow.Ports(name)
	if narrow.Name(name).Allowed != (len(ports) > 0) {
		t.Errorf("%s: %+v, but ports %v", name, narrow.Name(name), ports)
	}
	at := slices.IndexFunc(ports, func(p Port) bool { return p.Number == port })
	if got.Allowed != (at >= 0) || at >= 0 && ports[at].Protocol != got.Protocol {
		t.Errorf("%s:%d: %+v, but ports %v", name, port, got, ports)
	}
}

// FuzzDecode: no text makes Decode panic, and an accepted one has exactly one spelling.
func FuzzDecode(f *testing.F) {
	data, err := json.Marshal(example)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"private":["fd00:0::/8"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Decode(data)
		if err != nil {
			return
		}
		if again, err := Encode(r); err != nil || string(again) != string(data) {
			t.Errorf("%s became %s, %v", data, again, err)
		}
	})
}

// TestRulesFor: the rules for words allow these words, and only them.
func TestRulesFor(t *testing.T) {
	for ask, want := range map[string]string{
		"":                 `{}`,
		"none":             `{}`,
		"npm":              `{"allow":[{"preset":"npm"}]}`,
		"npm,example.org":  `{"allow":[{"preset":"npm"},{"host":"example.org"}]}`,
		"*.example.org:80": `{"allow":[{"host":"*.example.org","protocol":"http"}]}`,
		"example.org:8443 example.org:8080 example.org:22": `{"allow":[{"host":"example.org","ports":[8443]},{"host":"example.org","ports":[8080],"protocol":"http"},` +
			`{"host":"example.org","ports":[22],"protocol":"tcp"}]}`,
	} {
		r, err := RulesFor(ask)
		if err != nil {
			t.Errorf("%q: %v", ask, err)
			continue
		}
		got, err := Encode(r)
		if err != nil || string(got) != want {
			t.Errorf("%q: %s, %v", ask, got, err)
		}
		if _, err := compile(t, *r).Narrow(ask); err != nil {
			t.Errorf("%q is not allowed by its own rules: %v", ask, err)
		}
	}
	for _, ask := range []string{"none npm", "*", "192.0.2.1", "example.org:0", "https://example.org/", strings.Repeat("npm ", 65), strings.Repeat("x", MaxAsk+1)} {
		if r, err := RulesFor(ask); err == nil {
			t.Errorf("%q: %+v", ask, r)
		}
	}
}
