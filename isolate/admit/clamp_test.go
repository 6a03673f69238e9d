package admit

import (
	"errors"
	"strings"
	"testing"
	"time"

	"corral/isolate/wire"
	"corral/job"
)

// TestClampEntry: entries lower limits, select profiles and narrow or refuse writing.
func TestClampEntry(t *testing.T) {
	c := Served{Config: Config{Entries: []Entry{
		{Path: "/free"},
		{Path: "/bound", Ceilings: job.Limits{PIDs: 10, Wall: time.Second}},
		{Path: "/still", ReadOnly: true},
		{Path: "/strict", Profile: "strict"},
		{Path: "/layer", Overlay: true},
		{Path: "/twice"},
		{Path: "/twice", ReadOnly: true, Profile: "strict"},
	}}}
	defaults := job.Limits{PIDs: 512, Wall: job.Unlimited, Memory: 1 << 30}
	for _, tt := range []struct {
		name, path string
		run        wire.Run
		limits     job.Limits // replaces defaults if not zero
		profile    string
		step       string // step of the refusal; "" for none
	}{
		{"listed nowhere", "/other", wire.Run{Limits: job.Limits{PIDs: 900}}, job.Limits{}, "", ""},
		{"nothing said", "/free", wire.Run{Limits: job.Limits{PIDs: 900}, Profile: "default"}, job.Limits{}, "default", ""},
		{"lowered", "/bound", wire.Run{}, job.Limits{PIDs: 10, Wall: time.Second, Memory: 1 << 30}, "", ""},
		{"asked for what is allowed", "/bound", wire.Run{Limits: job.Limits{PIDs: 10}}, job.Limits{PIDs: 10, Wall: time.Second, Memory: 1 << 30}, "", ""},
		{"asked for more", "/bound", wire.Run{Limits: job.Limits{PIDs: 11}}, job.Limits{}, "", "limits"},
		{"asked for no limit", "/bound", wire.Run{Limits: job.Limits{Wall: job.Unlimited}}, job.Limits{}, "", "limits"},
		{"reads", "/still", wire.Run{Flags: wire.FlagReadOnly}, job.Limits{}, "", ""},
		{"writes", "/still", wire.Run{}, job.Limits{}, "", ""},
		{"no profile asked for", "/strict", wire.Run{}, job.Limits{}, "strict", ""},
		{"its profile", "/strict", wire.Run{Profile: "strict"}, job.Limits{}, "strict", ""},
		{"another profile", "/strict", wire.Run{Profile: "default"}, job.Limits{}, "", "profile"},
		{"writes to a layer", "/layer", wire.Run{Flags: wire.FlagOverlay}, job.Limits{}, "", ""},
		{"reads below it", "/layer", wire.Run{Flags: wire.FlagReadOnly}, job.Limits{}, "", ""},
		{"writes below it", "/layer", wire.Run{}, job.Limits{}, "", "workspace"},
		{"applies a layer", "/layer", wire.Run{Tool: string(job.ToolChanges)}, job.Limits{}, "", ""},
		{"applies where nothing is written", "/still", wire.Run{Tool: string(job.ToolChanges)}, job.Limits{}, "", "workspace"},
		{"sees nothing of it", "/still", wire.Run{Flags: wire.FlagNoRepo}, job.Limits{}, "", ""},
		{"sees nothing below it", "/layer", wire.Run{Flags: wire.FlagNoRepo}, job.Limits{}, "", ""},
		{"an entry of two", "/twice", wire.Run{}, job.Limits{}, "strict", ""},
		{"the other's profile", "/twice", wire.Run{Flags: wire.FlagReadOnly}, job.Limits{}, "strict", ""},
	} {
		want := tt.limits
		if want == (job.Limits{}) {
			want = defaults
		}
		q := &Request{Run: tt.run}
		limits, profile, err := c.clampEntry(tt.path, q, defaults)
		if narrowed := q.Flags != tt.run.Flags; narrowed != (strings.Contains("/still /twice", tt.path) && tt.run == (wire.Run{})) || narrowed != q.Narrowed {
			t.Errorf("%s: flags %#x of %#x", tt.name, q.Flags, tt.run.Flags)
		}
		var refusal *job.Refusal
		switch {
		case tt.step == "" && (err != nil || limits != want || profile != tt.profile):
			t.Errorf("%s: %+v, %q, %v", tt.name, limits, profile, err)
		case tt.step != "" && (!errors.As(err, &refusal) || refusal.Step != tt.step || refusal.Hint == ""):
			t.Errorf("%s: %v, want a refusal at %s", tt.name, err, tt.step)
		}
	}
}

// TestClampLimitsCommon: requests that contradict an entry of the common directory are refused, and the strictest of
// all entries applies.
func TestClampLimitsCommon(t *testing.T) {
	c := Served{Config: Config{Entries: []Entry{
		{Path: "/wt", Ceilings: job.Limits{PIDs: 20}},
		{Path: "/main", Profile: "strict", Ceilings: job.Limits{PIDs: 10}, ReadOnly: true},
		{Path: "/main/.git", Overlay: true, Ceilings: job.Limits{Memory: 1 << 20}},
	}}}
	r := &Repo{Path: "/wt", Common: &Repo{Path: "/main/.git"}}
	for step, run := range map[string]wire.Run{"": {}, "limits": {Limits: job.Limits{PIDs: 11}}, "profile": {Profile: "default"}} {
		limits, profile, err := c.Clamp(r, &Request{Run: run}, job.Limits{PIDs: 512, Memory: 1 << 30})
		if step != "" {
			refusedAt(t, step, err, step, 0)
		} else if err != nil || limits != (job.Limits{PIDs: 10, Memory: 1 << 20}) || profile != "strict" {
			t.Errorf("%+v, %q, %v", limits, profile, err)
		}
	}
}
