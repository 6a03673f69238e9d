package network

import (
	"strings"
	"testing"
)

// TestRequest is the table of rules and requests.
func TestRequest(t *testing.T) {
	set, err := Compile(&Rules{
		Allow: []Rule{
			{Host: "api.example.org", Methods: []string{"GET", "HEAD"}, Paths: []string{"/repos/acme/**", "/users/*", "/"}, Secret: "acme-api"},
			{Host: "api.example.org", Methods: []string{"POST"}, Paths: []string{"/repos/acme/issues"}},
			{Host: "mixed.example.org", Methods: []string{"GET"}},
			{Host: "mixed.example.org"},
			{Host: "denied.example.org", Methods: []string{"GET"}},
			{Host: "db.example.org", Ports: []uint16{443}, Protocol: TCP},
			{Host: "both.example.org", Methods: []string{"GET"}},
			{Host: "both.example.org", Ports: []uint16{443}, Protocol: TCP},
			{Host: "*.example.org", Paths: []string{"/never"}, Secret: "acme-api"},
		},
		Deny: []string{"denied.example.org"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		request string
		want    bool
		secret  string
	}{
		{"GET api.example.org /repos/acme/x", true, "acme-api"},
		{"GET api.example.org /repos/acme/x/y/", true, "acme-api"},
		{"GET api.example.org /repos/acme/", true, "acme-api"},
		{"HEAD api.example.org /", true, "acme-api"},
		{"GET api.example.org /users/x", true, "acme-api"},
		{"POST api.example.org /repos/acme/issues", true, ""},
		{"GET api.example.org /repos/acme", false, ""},
		{"GET api.example.org /repos/acmex/y", false, ""},
		{"GET api.example.org /users/", false, ""},
		{"GET api.example.org /users/x/y", false, ""},
		{"GET api.example.org /users/x/", false, ""},
		{"GET api.example.org x", false, ""},
		{"POST api.example.org /repos/acme/x", false, ""},
		{"get api.example.org /users/x", false, ""},
		{"DELETE api.example.org /users/x", false, ""},
		{"DELETE mixed.example.org /users/x", true, ""}, // by the second rule
		{"DELETE both.example.org /users/x", false, ""}, // the second rule is about what is not read
		{"GET denied.example.org /", false, ""},
		{"GET other.example.org /", false, ""},
	} {
		words := strings.Fields(tt.request)
		got := set.Request(words[1], 443, words[0], words[2])
		if got.Allowed != tt.want || got.Secret != tt.secret || (got.Why == "") != tt.want {
			t.Errorf("%s: %+v, want %v with secret %q", tt.request, got, tt.want, tt.secret)
		}
		if set.Request(words[1], 80, words[0], words[2]).Allowed {
			t.Errorf("%s is allowed at another port", tt.request)
		}
	}
	// The first rule of a port says the protocol.
	for name, want := range map[string]string{"api.example.org": HTTPS, "mixed.example.org": HTTPS, "db.example.org": TCP} {
		if d := set.Decide(name, 443); d.Protocol != want {
			t.Errorf("%s: %+v, want %s", name, d, want)
		}
		if ports := set.Ports(name); len(ports) != 1 || ports[0].Protocol != want {
			t.Errorf("%s: %v, want %s", name, ports, want)
		}
	}
	narrowed, err := set.Narrow("mixed.example.org")
	if err != nil {
		t.Fatal(err)
	}
	if narrowed.Request("api.example.org", 443, "GET", "/users/x").Allowed || !narrowed.Request("mixed.example.org", 443, "GET", "/").Allowed {
		t.Error("a request beyond what was asked for is allowed, or one within is not")
	}
}

// TestCheckRequests: what a rule can say about requests.
func TestCheckRequests(t *testing.T) {
	for want, r := range map[string]Rule{
		"need `protocol: tls`": {Methods: []string{"GET"}, Protocol: HTTP},
		"`secret` need":        {Secret: "x", Protocol: TCP, Ports: []uint16{1}},
		`got "get"`:            {Methods: []string{"get"}},
		"nor TRACE":            {Methods: []string{"TRACE"}},
		"neither CONNECT":      {Methods: []string{"CONNECT"}},
		"in capital letters":   {Methods: []string{""}},
		"17 methods":           {Methods: make([]string, maxMethods+1)},
		"33 headers":           {Paths: []string{"/a"}, Headers: make([]string, maxHeaders+1)},
		"of a header":          {Paths: []string{"/a"}, Headers: []string{"X Tenant"}},
		"needs `methods`":      {Secret: "x", Headers: []string{"X-Tenant"}},
		"65 paths":             {Paths: make([]string, maxPaths+1)},
		"the name of a secret": {Secret: "Acme"},
		"begin with a slash":   {Paths: []string{"repos"}},
		"at most 512":          {Paths: []string{"/" + strings.Repeat("x", maxPath)}},
		"empty or only dots":   {Paths: []string{"/a/../b"}},
		"that is empty":        {Paths: []string{"/a//b"}},
		"** the last":          {Paths: []string{"/**/a"}},
		"* must be a whole":    {Paths: []string{"/a*"}},
		"? or #":               {Paths: []string{"/a?b"}},
		"backslashes":          {Paths: []string{`/a\b`}},
	} {
		r.Host = "example.org"
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", r, err, want)
		}
	}
	for _, r := range []Rule{{Methods: []string{"GET"}}, {Paths: []string{"/a"}}, {Headers: []string{"X-Tenant"}}, {Secret: "x"}} {
		r.Preset = "npm"
		if err := r.Check(); err == nil {
			t.Errorf("%+v is accepted", r)
		}
	}
	for _, r := range []Rule{{Methods: []string{"GET"}}, {Paths: []string{"/a"}}} { // one of both is enough for headers
		r.Host, r.Headers = "example.org", []string{"X-Tenant"}
		if err := r.Check(); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
	good := Rule{Host: "example.org", Protocol: TLS, Methods: []string{"GET"}, Paths: []string{"/", "/a/", "/a/*/b", "/**", "/%2F"}, Headers: []string{"X-Tenant"}, Secret: "a-b_1"}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	if got, want := good.String(), `{host: example.org, protocol: tls, methods: [GET], paths: ["/", "/a/", "/a/*/b", "/**", "/%2F"], headers: [X-Tenant], secret: a-b_1}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestCheckAfter: a rule about requests is an error behind one that has them passed on unread.
func TestCheckAfter(t *testing.T) {
	about := Rule{Host: "api.example.org", Methods: []string{"GET"}}
	for name, tt := range map[string]struct {
		rules []Rule
		want  string
	}{
		"the same host":        {[]Rule{{Host: "api.example.org"}, about}, "entry 2 of allow"},
		"a wildcard":           {[]Rule{about, {Host: "*.example.org"}, {Host: "*.example.org", Secret: "x"}}, "entry 3 of allow"},
		"a host of it":         {[]Rule{{Host: "*.example.org"}, about}, "`host: \"*.example.org\"` passes on unread"},
		"one of its ports":     {[]Rule{{Host: "api.example.org", Ports: []uint16{8443}, Protocol: TCP}, {Host: "api.example.org", Ports: []uint16{443, 8443}, Paths: []string{"/"}}}, "at port 8443"},
		"a preset":             {[]Rule{{Preset: "npm"}, {Host: "registry.npmjs.org", Secret: "x"}}, "`preset: npm` passes on unread"},
		"before":               {[]Rule{about, {Host: "api.example.org"}, {Host: "*.example.org"}}, ""},
		"another port":         {[]Rule{{Host: "api.example.org", Ports: []uint16{8443}}, about}, ""},
		"another host":         {[]Rule{{Host: "example.org"}, {Host: "*.api.example.org"}, about}, ""},
		"a part of it":         {[]Rule{{Host: "api.example.org"}, {Host: "*.example.org", Methods: []string{"GET"}}}, ""},
		"after one about them": {[]Rule{{Host: "*.example.org", Methods: []string{"GET"}}, about}, ""},
		"a preset behind":      {[]Rule{{Host: "github.com"}, {Preset: "github-read"}}, ""},
		"a preset about them":  {[]Rule{{Preset: "github-read"}, {Host: "github.com", Secret: "x"}}, ""},
	} {
		err := (&Rules{Allow: tt.rules}).Check()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// TestGitHubRead: the preset allows what reads, and neither a push nor a change by the API.
func TestGitHubRead(t *testing.T) {
	rules := &Rules{Allow: []Rule{{Preset: "github-read"}}}
	if !rules.Inspects() {
		t.Error("the preset is not about requests")
	}
	set, err := Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		host, method, path string
		want               bool
	}{
		{"github.com", "GET", "/acme/app.git/info/refs", true},
		{"github.com", "POST", "/acme/app.git/git-upload-pack", true},
		{"github.com", "POST", "/acme/app.git/git-receive-pack", false},
		{"github.com", "POST", "/acme/git-upload-pack", false},
		{"github.com", "POST", "/session", false},
		{"api.github.com", "GET", "/repos/acme/app", true},
		{"api.github.com", "POST", "/gists", false},
		{"gist.github.com", "GET", "/", false},
	} {
		if d := set.Request(tt.host, 443, tt.method, tt.path); d.Allowed != tt.want || d.Secret != "" {
			t.Errorf("%s %s at %s: %+v, want %v", tt.method, tt.path, tt.host, d, tt.want)
		}
	}
}
