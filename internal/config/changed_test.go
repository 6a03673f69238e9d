package config

import (
	"slices"
	"testing"
	"time"
)

// TestChanged checks that each key of a front-end is named with its section, and that no key of the supervisor is.
func TestChanged(t *testing.T) {
	if got := Changed(Default(), Default()); got != nil {
		t.Errorf("without a change: %q", got)
	}
	c := Default()
	c.Repos = []Repo{{ID: "app", Path: "/srv/app"}}
	c.Principals = Principals{{Name: "ci"}}
	c.Defaults.PIDs++
	c.Runtime.Rules, c.Runtime.Env = "/etc/corral/rules.star", []string{"LANG"}
	c.HTTP.SessionIdle = time.Second
	c.MaxJobs, c.WarmSlots, c.Audit, c.Toolchains = 1, 1, Audit{}, []string{"/opt"}
	want := []string{"repos", "defaults", "runtime.env.allow", "runtime.rules", "principals", "http.session_idle"}
	if got := Changed(Default(), c); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
