package server

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"corral/internal/config"
)

// TestOwnHosts checks that the listening address is accepted as Host, but not a wildcard.
func TestOwnHosts(t *testing.T) {
	for _, row := range []struct{ asked, bound, want string }{
		{"192.168.1.5:7070", "192.168.1.5:7070", "192.168.1.5:7070"},
		{"192.168.1.5:0", "192.168.1.5:40123", "192.168.1.5:40123"},
		{"build.lan:80", "192.168.1.5:80", "192.168.1.5 192.168.1.5:80 build.lan build.lan:80"},
		{"[2001:db8::1]:80", "[2001:db8::1]:80", "[2001:db8::1] [2001:db8::1]:80"},
		{"0.0.0.0:7070", "0.0.0.0:7070", ""},
		{":7070", "[::]:7070", ""},
		{"[::]:80", "[::]:80", ""},
	} {
		bound := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(row.bound))
		if got := strings.Join(ownHosts(row.asked, bound), " "); got != row.want {
			t.Errorf("%s: %q, want %q", row.asked, got, row.want)
		}
	}
}

// TestTokensFirst checks that a configuration without principals is refused before a supervisor is needed.
func TestTokensFirst(t *testing.T) {
	s := &serving{tokens: true}
	repos := []config.Repo{{ID: "app", Path: "/srv/app"}}
	if err := s.only(&config.Config{Repos: repos}); err == nil || !strings.Contains(err.Error(), "corral config token") {
		t.Errorf("without principals: %v", err)
	}
	if err := s.only(&config.Config{Repos: repos, Principals: config.Principals{{Name: "ci"}}}); err != nil {
		t.Errorf("with a principal: %v", err)
	}
	s.tokens = false
	if err := s.only(&config.Config{Repos: repos}); err != nil {
		t.Errorf("over standard input: %v", err)
	}
}
