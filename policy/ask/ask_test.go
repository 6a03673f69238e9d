package ask

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"corral/job"
	"corral/policy/network"
)

func TestParse(t *testing.T) {
	long := strings.Repeat("a", 60)
	var many, large []string
	for n := range network.MaxAsked {
		many = append(many, fmt.Sprintf("h%d.example.org", n))
		large = append(large, fmt.Sprintf("h%d.%s.%s.example.org", n, long, long))
	}
	for _, tt := range []struct {
		texts []string
		want  string
		err   string // part of the error
	}{
		{nil, "", ""},
		{[]string{""}, "", ""},
		{[]string{" ,\t\n"}, "", ""},
		{[]string{"none"}, "none", ""},
		{[]string{"npm"}, "npm", ""},
		{[]string{"npm,pypi", "example.org:8443  *.example.com"}, "npm pypi example.org:8443 *.example.com", ""},
		{[]string{"npm", "npm,npm"}, "npm", ""},
		{[]string{"localhost"}, "localhost", ""},
		{[]string{"_dmarc.example.org:1"}, "_dmarc.example.org:1", ""},
		{[]string{"example.org:65535"}, "example.org:65535", ""},
		{many, strings.Join(many, " "), ""},

		{[]string{"none", "npm"}, "", `"none" cannot be combined`},
		{[]string{"npm none"}, "", `"none" cannot be combined`},
		{[]string{"Example.org"}, "", "lower case"},
		{[]string{"https://example.org"}, "", "neither a URL nor an address"},
		{[]string{"user@example.org:443"}, "", "neither a URL nor an address"},
		{[]string{"[2001:db8::1]:443"}, "", "neither a URL nor an address"},
		{[]string{"2001:db8::1"}, "", "neither a URL nor an address"},
		{[]string{"192.0.2.1:443"}, "", "an address cannot be allowed"},
		{[]string{"*"}, "", "would be every host"},
		{[]string{"*.org"}, "", "at least two labels"},
		{[]string{"a.*.org"}, "", "wildcard can only be the first label"},
		{[]string{"exa\x1bmple.org"}, "", `"exa\x1bmple.org"`},
		{[]string{"münchen.example"}, "", "xn--"},
		{[]string{"example.org:"}, "", "from 1 to 65535"},
		{[]string{"example.org:0"}, "", "from 1 to 65535"},
		{[]string{"example.org:0443"}, "", "from 1 to 65535"},
		{[]string{"example.org:+443"}, "", "from 1 to 65535"},
		{[]string{"example.org:65536"}, "", "from 1 to 65535"},
		{[]string{":443"}, "", "the name is empty"},
		{append(slices.Clone(many), "one.example.org"), "", "65 words, the maximum is 64"},
		{large, "", "more than 4096 bytes"},
		{[]string{strings.Repeat(" ", network.MaxAsk+1)}, "", "more than 4096 bytes"},
	} {
		got, err := Parse(tt.texts...)
		switch {
		case tt.err == "" && (err != nil || got != tt.want):
			t.Errorf("%.100q: %q, %v, want %q", tt.texts, got, err, tt.want)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err) || got != ""):
			t.Errorf("%.100q: %q, %v, want an error with %q", tt.texts, got, err, tt.err)
		}
	}
}

// TestParsePresets: an error names the presets there are, and each of them is a word.
func TestParsePresets(t *testing.T) {
	_, err := Parse("http://x")
	for _, p := range network.Presets() {
		if got, failed := Parse(p.Name); failed != nil || got != p.Name {
			t.Errorf("%s: %q, %v", p.Name, got, failed)
		}
		if err == nil || !strings.Contains(err.Error(), p.Name) {
			t.Errorf("%v, want %s in it", err, p.Name)
		}
	}
}

// FuzzParse: what is accepted is bounded, parsed again it is the same, and package network takes each of its words for one.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"npm,pypi", "none", "*.example.org:443 example.org", "a:b", "[::1]:80", "\x00", "xn--mnchen-3ya.example"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := Parse(s)
		if err != nil {
			return
		}
		if again, err := Parse(got); err != nil || again != got || len(got) > network.MaxAsk {
			t.Fatalf("%q: %q, and then %q, %v", s, got, again, err)
		}
		for _, word := range strings.Fields(got) {
			if word == job.NoNetwork {
				continue
			}
			rules := network.Rules{Allow: []network.Rule{{Host: word}}}
			if isPreset(word) {
				rules.Allow[0] = network.Rule{Preset: word}
			} else if host, port, with := strings.Cut(word, ":"); with {
				var n uint16
				if _, err := fmt.Sscan(port, &n); err != nil {
					t.Fatal(err)
				}
				rules.Allow[0] = network.Rule{Host: host, Ports: []uint16{n}}
			}
			set, err := network.Compile(&rules)
			if err != nil {
				t.Fatalf("%q: %v", word, err)
			}
			if _, err := set.Narrow(word); err != nil {
				t.Fatalf("%q: %v", word, err)
			}
		}
	})
}

func TestNarrow(t *testing.T) {
	for _, tt := range []struct {
		most, asked, want string
		refused           string // part of the error
	}{
		{"", "", "", ""},
		{"", "npm", "npm", ""},
		{"", "none", "none", ""},
		{"npm pypi", "", "npm pypi", ""},
		{"npm pypi", "pypi", "pypi", ""},
		{"npm pypi", "none", "none", ""},
		{"none", "", "none", ""},
		{"none", "none", "none", ""},
		{"example.org", "example.org:443", "example.org:443", ""},
		{"*.example.org", "api.example.org a.b.example.org:443", "api.example.org a.b.example.org:443", ""},
		{"*.example.org", "*.api.example.org", "*.api.example.org", ""},
		{"*.example.org:443", "*.example.org:443", "*.example.org:443", ""},

		{"none", "npm", "", "no network access may be requested"},
		{"npm", "npm pypi", "", "pypi may not be requested, only: npm"},
		{"npm", "npm:443", "", "npm:443 may not"}, // a host whose name is that of a preset
		{"npm:443", "npm", "", "npm may not"},
		{"npm", "registry.npmjs.org", "", "registry.npmjs.org may not"},
		{"*.npmjs.org", "npm", "", "npm may not"},
		{"example.org:443", "example.org", "", "example.org may not"},
		{"example.org:443", "example.org:80", "", "example.org:80 may not"},
		{"*.example.org", "example.org", "", "example.org may not"},
		{"*.example.org", "*.example.com", "", "*.example.com may not"},
		{"*.example.org", "badexample.org", "", "badexample.org may not"},
		{"api.example.org", "*.example.org", "", "*.example.org may not"},
		{"*.example.org:443", "api.example.org", "", "api.example.org may not"},
		{"*.api.example.org", "*.example.org", "", "*.example.org may not"},
	} {
		got, err := Narrow(tt.most, tt.asked)
		switch {
		case tt.refused == "" && (err != nil || got != tt.want):
			t.Errorf("%q of %q: %q, %v, want %q", tt.asked, tt.most, got, err, tt.want)
		case tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused) || got != ""):
			t.Errorf("%q of %q: %q, %v, want an error with %q", tt.asked, tt.most, got, err, tt.refused)
		}
	}
}

func TestCommon(t *testing.T) {
	for _, tt := range []struct{ a, b, want string }{
		{"", "", ""},
		{"", "npm", "npm"},
		{"", "none", "none"},
		{"none", "npm", "none"},
		{"npm pypi", "pypi cargo", "pypi"},
		{"npm", "pypi", "none"},
		{"*.example.org npm", "api.example.org:443 npm", "npm api.example.org:443"},
		{"example.org:443", "example.org:80", "none"},
	} {
		for _, pair := range [][2]string{{tt.a, tt.b}, {tt.b, tt.a}} {
			got := strings.Fields(Common(pair[0], pair[1]))
			want := strings.Fields(tt.want)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%q: %q, want %q", pair, got, want)
			}
		}
	}
}
