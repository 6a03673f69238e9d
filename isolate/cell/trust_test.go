package cell

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"corral/egress/authority"
	"corral/internal/test/sandboxtest"
	"corral/isolate/host"
	"corral/isolate/trust"
	"corral/seccomp"
)

// TestAuthorityOfJail: jobs with a door share a jail only if they trust the same authority, which a jail keeps to its end. Jobs without a door
// trust none, and share their jail whatever the others trust.
func TestAuthorityOfJail(t *testing.T) {
	var now []byte
	s := newTestJails(t, func(c *Config) {
		c.MaxJails = 99
		c.Log = slog.New(slog.DiscardHandler) // a jail that cannot be built is logged
	})
	peer, path := host.Peer{UID: sandboxtest.Owner}, sandboxtest.NewRepo(t)
	enter := func(door bool) (*Jail, error) {
		t.Helper()
		n := Network{Door: door}
		if door {
			n.Authority = now
		}
		r, err := s.served.Serves(peer, path, sandboxtest.Opened(t, path))
		if err != nil {
			t.Fatal(err)
		}
		j, err := s.Enter(peer, r, seccomp.Profiles()[0], n)
		if err == nil {
			t.Cleanup(j.Leave)
		}
		return j, err
	}
	var jails []*Jail
	for range 2 {
		a, err := authority.New(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		now = a.PEM()
		one, err1 := enter(true)
		two, err2 := enter(true)
		plain, err3 := enter(false)
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		if one != two || !slices.Equal(one.Authority(), now) || plain.Authority() != nil || plain.trusted != nil {
			t.Errorf("jails %p and %p with %q, without a door %q", one, two, one.Authority(), plain.Authority())
		}
		jails = append(jails, one, plain)
	}
	if jails[0] == jails[2] || jails[1] != jails[3] || slices.Equal(jails[0].Authority(), now) {
		t.Error("a jail is shared by jobs that trust different authorities, or is not by those that trust none")
	}
	now = []byte("nonsense")
	if _, err := enter(true); !errors.Is(err, trust.ErrAuthority) {
		t.Errorf("nonsense: %v", err)
	}
	now = nil
	none, err := enter(true)
	if err != nil || none == jails[2] || none.Authority() != nil || none.trusted != nil {
		t.Errorf("no authority: %v", err)
	}
}
