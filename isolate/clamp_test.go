package isolate

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
	c := Config{Repos: []Repo{
		{Path: "/free"},
		{Path: "/bound", Ceilings: job.Limits{PIDs: 10, Wall: time.Second}},
		{Path: "/still", ReadOnly: true},
		{Path: "/strict", Profile: "strict"},
		{Path: "/layer", Overlay: true},
		{Path: "/twice"},
		{Path: "/twice", ReadOnly: true, Profile: "strict"},
	}}
	defaults := job.Limits{PIDs: 512, Wall: job.Unlimited, Memory: 1 << 30}
	for _, tt := range []struct {
		name, path string
		run        wire.Run
		limits     job.Limits // replaces defaults if not zero
		profile    string
		step       string // step of the refusal; "" for none
	}{
		{"listed nowhere", "/other", wire.Run{PIDs: 900}, job.Limits{}, "", ""},
		{"nothing said", "/free", wire.Run{PIDs: 900, Profile: "default"}, job.Limits{}, "default", ""},
		{"lowered", "/bound", wire.Run{}, job.Limits{PIDs: 10, Wall: time.Second, Memory: 1 << 30}, "", ""},
		{"asked for what is allowed", "/bound", wire.Run{PIDs: 10}, job.Limits{PIDs: 10, Wall: time.Second, Memory: 1 << 30}, "", ""},
		{"asked for more", "/bound", wire.Run{PIDs: 11}, job.Limits{}, "", "limits"},
		{"asked for no limit", "/bound", wire.Run{Wall: job.Unlimited}, job.Limits{}, "", "limits"},
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
		if narrowed := q.Flags != tt.run.Flags; narrowed != (strings.Contains("/still /twice", tt.path) && tt.run == (wire.Run{})) || narrowed != q.narrowed {
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

// TestReadOnlyEntryEnforced: no front-end gets write access to a repository that the operator configured readonly. A
// job that would have written reads it instead and reports that, also in a session.
func TestReadOnlyEntryEnforced(t *testing.T) {
	dir := newRepo(t)
	f := newFront(t, func(c *Config) { c.Repos = []Repo{{Path: dir, ReadOnly: true, Profile: "strict"}} })
	f.repo = dir
	script := "echo x >made || echo refused"
	spec := f.spec("sh", "-c", script)
	for _, workspace := range []job.Workspace{job.Direct, job.ReadOnly} {
		spec.Workspace = workspace
		if d := f.run(spec); strings.TrimSpace(d.out) != "refused" || exists(dir+"/made") || d.ReadOnly != (workspace == job.Direct) {
			t.Errorf("%v: %+v", workspace, d)
		}
	}
	ss := f.session(job.SessionSpec{})
	if d := f.in(ss, script); ss.Workspace != job.ReadOnly || strings.TrimSpace(d.out) != "refused" || exists(dir+"/made") {
		t.Errorf("session %v: %+v", ss.Workspace, d)
	}
}
