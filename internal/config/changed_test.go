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

// TestLive: repositories, principals and rules are taken over from a configuration that was read again, and no other key.
func TestLive(t *testing.T) {
	c := Default()
	c.Repos = []Repo{{ID: "app", Path: "/srv/app"}}
	c.Principals = Principals{{Name: "ci"}}
	c.Defaults.PIDs++
	c.Ceilings.PIDs = 9
	c.Profiles = map[string]Profile{"x": {}}
	c.Runtime = Runtime{Runtimes: []string{"shell"}, Rules: "/rules", MaxDuration: time.Second, MaxConcurrentJobs: 1, QueueWait: 1, QueueLength: 2}
	c.HTTP.SessionIdle, c.Ctx.MaxBackground, c.Output.Keep = time.Second, 1, 1
	live := Live(Default(), c)
	want := []string{
		"runtime.max_concurrent_jobs", "runtime.queue_wait", "runtime.queue_length", "output.keep", "http.session_idle", "ctx.max_background",
	}
	if got := Changed(live, c); !slices.Equal(got, want) {
		t.Errorf("need a restart: %q, want %q", got, want)
	}
	for _, key := range []string{"repos", "principals", "defaults", "ceilings", "profiles", "runtime.enabled", "runtime.runtimes", "runtime.rules", "runtime.max_duration"} {
		if !slices.Contains(Changed(Default(), live), key) {
			t.Errorf("%s is not taken over", key)
		}
	}
}
