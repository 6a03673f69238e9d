package admit

import (
	"encoding/json"
	"testing"

	"corral/isolate/host"
	"corral/job"
)

// TestNetworkRules: the entry decides, and two entries that do not agree allow nothing.
func TestNetworkRules(t *testing.T) {
	npm, pypi, general := json.RawMessage("npm"), json.RawMessage("pypi"), json.RawMessage("general")
	s := Served{Config: Config{Network: general, Entries: []Entry{
		{Path: "/npm", Network: npm},
		{Path: "/closed"},
		{Path: "/twice", Network: npm},
		{Path: "/twice", Network: npm},
		{Path: "/differ", Network: npm},
		{Path: "/differ", Network: pypi},
		{Path: "/or-none"},
		{Path: "/or-none", Network: npm},
		{Path: "/none-or", Network: npm},
		{Path: "/none-or"},
		{Path: "/bare.git", Network: npm},
		{Path: "/general", Network: general},
		{Path: "/empty", Network: json.RawMessage("{}")},
		{Path: "/users", Network: npm, UIDs: []uint32{1000}},
		{Path: "/users", Network: pypi, UIDs: []uint32{1001}},
		{Path: "/user", Network: npm, UIDs: []uint32{1000}},
	}}}
	peer := host.Peer{UID: 1000}
	for _, tt := range []struct{ path, common, want string }{
		{"/npm", "", "npm"},
		{"/closed", "", ""},
		{"/own", "", "general"},
		{"/empty", "", ""},
		{"/users", "", "npm"},
		{"/npm/below", "", "general"},
		{"/twice", "", "npm"},
		{"/differ", "", ""},
		{"/or-none", "", ""},
		{"/none-or", "", ""},

		{"/twice", "/npm/.git", "npm"},
		{"/twice", "/bare.git", "npm"},
		{"/own", "/npm/.git", ""},
		{"/own", "/closed/.git", ""},
		{"/own", "/bare.git", ""},
		{"/own", "/general/.git", "general"},
		{"/own", "/elsewhere/.git", "general"},
		{"/closed", "/npm/.git", ""},
		{"/npm", "/closed/.git", ""},
		{"/npm", "/elsewhere/.git", "npm"},
	} {
		if got := s.NetworkRules(peer, Paths{tt.path, tt.common}); string(got) != tt.want {
			t.Errorf("%s with %q: %q, want %q", tt.path, tt.common, got, tt.want)
		}
	}
	for _, tt := range []struct {
		peer host.Peer
		path string
		want string
	}{
		{host.Peer{UID: 1001}, "/users", "pypi"},
		{host.Peer{UID: 1002}, "/users", ""},
		{host.Peer{UID: 1002}, "/user", "npm"}, // as the entry's limits apply to an owner whom it does not list
		{host.Peer{UID: 1000, Embedded: true}, "/users", ""},
	} {
		if got := s.NetworkRules(tt.peer, Paths{Repo: tt.path}); string(got) != tt.want {
			t.Errorf("%s for user %d: %q, want %q", tt.path, tt.peer.UID, got, tt.want)
		}
	}
}

// TestCheckNetwork: only what asks for hosts where none is allowed is refused here.
func TestCheckNetwork(t *testing.T) {
	for _, tt := range []struct {
		asked string
		rules json.RawMessage
		step  string
	}{
		{"", nil, ""},
		{job.NoNetwork, nil, ""},
		{"npm", nil, "network"},
		{"none npm", nil, "network"},
		{"", json.RawMessage("x"), ""},
		{job.NoNetwork, json.RawMessage("x"), ""},
		{"npm", json.RawMessage("x"), ""},
	} {
		err := CheckNetwork(tt.asked, tt.rules)
		if tt.step != "" {
			refusedAt(t, tt.asked, err, tt.step, 0)
		} else if err != nil {
			t.Errorf("%q with rules %q: %v", tt.asked, tt.rules, err)
		}
	}
}
