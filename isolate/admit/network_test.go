package admit

import (
	"encoding/json"
	"testing"
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
	}}}
	for _, tt := range []struct{ path, common, want string }{
		{"/npm", "", "npm"},
		{"/closed", "", ""},
		{"/own", "", "general"},
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
		r := &Repo{Path: tt.path}
		if tt.common != "" {
			r.Common = &Repo{Path: tt.common}
		}
		if got := s.NetworkRules(r); string(got) != tt.want {
			t.Errorf("%s with %q: %q, want %q", tt.path, tt.common, got, tt.want)
		}
	}
}
