package config

import (
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/policy/network"
)

// TestRules: the rules of a repository replace those of the file, also if they allow nothing.
func TestRules(t *testing.T) {
	const file = `version: 1
network: {allow: [{preset: npm}], deny: [a.example.org]}
repos:
  - {path: /bare}
  - {path: /own, network: {allow: [{host: b.example.org}], bytes: {up: 1MiB}}}
  - {path: /closed, network: {}}
  - {path: /denied, network: {deny: [b.example.org]}}
`
	c, err := parseOne("f", []byte(file), lookup)
	if err != nil {
		t.Fatal(err)
	}
	of := func(id string) *network.Rules {
		r, ok := c.Repo(id)
		if !ok {
			t.Fatalf("no repository %s", id)
		}
		return c.Rules(r)
	}
	general := &network.Rules{Allow: []network.Rule{{Preset: "npm"}}, Deny: []string{"a.example.org"}}
	for id, want := range map[string]*network.Rules{
		"bare": general, "closed": nil, "denied": nil,
		"own": {Allow: []network.Rule{{Host: "b.example.org"}}, Bytes: network.Bytes{Up: 1 << 20}},
	} {
		if got := of(id); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", id, got, want)
		}
	}
	if got := c.Rules(Repo{}); !reflect.DeepEqual(got, general) {
		t.Errorf("a directory that is not listed: %+v", got)
	}
	if got := Default().Rules(Repo{}); got != nil {
		t.Errorf("by default: %+v", got)
	}
}

// TestExposed: the networks of the host itself and of clouds' metadata are named, with the repository; others are not.
func TestExposed(t *testing.T) {
	const file = `version: 1
network: {private: [10.0.0.0/8, 127.0.0.0/8]}
repos:
  - {path: /own, network: {private: [192.168.0.0/16, 169.254.169.254/32, "fd00::/8"]}}
`
	c, err := parseOne("f", []byte(file), lookup)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, line := range c.Exposed() {
		what, _, _ := strings.Cut(line, ":")
		got = append(got, what)
	}
	want := []string{"network.private has 127.0.0.0/8", "network.private of /own has 169.254.169.254/32", "network.private of /own has fd00"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestMinAge: an age is given in days or as another time, and is checked with its rule.
func TestMinAge(t *testing.T) {
	for entry, want := range map[string]string{
		"{preset: npm, registry: npm, min_age: 7d}":            "",
		"{host: a.example.org, registry: cargo, min_age: 36h}": "",
		"{preset: npm, registry: npm, min_age: 7}":             "`min_age`",
		"{preset: npm, registry: npm, min_age: 99999999d}":     "`min_age`",
		"{preset: npm, registry: npm, min_age: 367d}":          "`min_age`",
		"{preset: npm, min_age: 7d}":                           "needs `registry`",
		"{preset: debian, registry: debian, min_age: 7d}":      "is not for debian",
		"{preset: debian, registry: apt}":                      "unknown registry",
	} {
		c, err := parseOne("f", []byte("version: 1\nnetwork: {allow: ["+entry+"]}\n"), lookup)
		switch {
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", entry, err, want)
		case want == "" && (err != nil || "- "+c.Network.Allow[0].String() != strings.Replace("- "+entry, "36h", "36h0m0s", 1)):
			t.Errorf("%s: %v, %v", entry, c.Network.Allow, err)
		}
	}
}

// TestPages: the examples of network access in the pages are valid, and allow something.
func TestPages(t *testing.T) {
	for _, page := range []string{"reference/configuration.md", "how-to/let-jobs-install-dependencies.md", "how-to/give-a-job-a-credential.md"} {
		found := false
		for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(contentOf(t, filepath.Join(sandboxtest.ModuleRoot(t), "docs", page)), -1) {
			file := m[1]
			if !strings.Contains(file, "network:") {
				continue
			}
			found = true
			if !strings.Contains(file, "version:") {
				file = "version: 1\n" + file
			}
			c, err := parseOne(page, []byte(file), lookup)
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			rules := c.Rules(Repo{})
			for _, r := range c.Repos {
				rules = c.Rules(r)
			}
			if rules == nil {
				t.Errorf("%s: %s: allows nothing", page, file)
			}
		}
		if !found {
			t.Errorf("%s has no example", page)
		}
	}
}

// TestRulesOfUsers: a user's file grants no network access.
func TestRulesOfUsers(t *testing.T) {
	for file, want := range map[string]string{
		"version: 1\nnetwork: {}\n":                      "u:2:10: `network` is for the supervisor",
		"version: 1\nrepos: [{path: /a, network: {}}]\n": "u:2:29: `network` is for the supervisor",
	} {
		_, err := parse([]Files{{User: true, Main: &File{"u", []byte(file)}}}, lookup)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}

// TestSuggestedRules: what a denial suggests is an entry of network.allow that allows it.
func TestSuggestedRules(t *testing.T) {
	for _, host := range []string{"example.org", "1.e3", "_a.b", "registry", "no", "pypi.org", "deb.debian.org"} {
		for _, port := range []uint16{22, 80, 443, 8080, 8443} {
			before := new(network.Set).Decide(host, port)
			c, err := parseOne("f", []byte("version: 1\nnetwork:\n  allow:\n  "+before.Allow+"\n"), lookup)
			if err != nil {
				t.Errorf("%s: %v", before.Allow, err)
				continue
			}
			set, err := network.Compile(c.Rules(Repo{}))
			if err != nil || !set.Decide(host, port).Allowed {
				t.Errorf("%s:%d: %s, %v", host, port, before.Allow, err)
			}
		}
	}
}

// TestSecrets: a secret has one source, and a rule names one that exists.
func TestSecrets(t *testing.T) {
	const rule = "version: 1\nnetwork: {allow: [{host: a.example.org, secret: acme}]}\n"
	for file, want := range map[string]string{
		rule + "secrets: {acme: {file: /a}}\n":                                                       "",
		rule + "secrets: {acme: {credential: a, header: X-Key, format: \"{}\"}}\n":                   "",
		rule + "secrets: {acme: {command: [/bin/a, b], env: [A, B]}}\n":                              "",
		rule + "secrets: {acmes: {file: /a}}\n":                                                      "f:2:49: unknown secret `acme`: did you mean `acmes`?",
		rule:                                                                                         "f:2:49: unknown secret `acme`: the file has no `secrets`",
		"version: 1\nsecrets: {acme: {}}\n":                                                          "must have one of `file`, `credential` and `command`",
		"version: 1\nsecrets: {acme: {file: /a, credential: b}}\n":                                   "must have one of `file`, `credential` and `command`",
		"version: 1\nsecrets: {acme: {command: [a]}}\n":                                              "must be an absolute path",
		"version: 1\nsecrets: {Acme: {file: /a}}\n":                                                  "the name of a secret",
		"version: 1\nsecrets: {acme: {file: /a, header: Host}}\n":                                    "the name of a header",
		"version: 1\nsecrets: {acme: {file: /a, header: \"a:b\"}}\n":                                 "the name of a header",
		"version: 1\nsecrets: {acme: {file: /a, format: Bearer}}\n":                                  "text with {} once",
		"version: 1\nsecrets: {acme: {file: /a, format: \"{}\\r\\nX: y\"}}\n":                        "text with {} once",
		"version: 1\nnetwork: {allow: [{preset: npm, secret: acme}]}\nsecrets: {acme: {file: /a}}\n": "preset \"npm\": it says host",
		"version: 1\nnetwork: {allow: [{host: a.b, methods: [get]}]}\n":                              "must be in capital letters",
		"version: 1\nnetwork: {allow: [{host: a.b, paths: [a]}]}\n":                                  "must begin with a slash",
		"version: 1\nnetwork: {allow: [{host: a.b, protocol: tcp, ports: [1], methods: [GET]}]}\n":   "need `protocol: tls`",
	} {
		_, err := parseOne("f", []byte(file), lookup)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
	if _, err := parse([]Files{{User: true, Main: &File{"u", []byte("version: 1\nsecrets: {}\n")}}}, lookup); err == nil || !strings.Contains(err.Error(), "`secrets` is for the supervisor") {
		t.Errorf("of a user: %v", err)
	}
}
