package policy

import (
	"slices"
	"testing"
	"time"

	"corral/job"
	"corral/lang"
)

// TestBackground: a job in the background has a time of its own.
func TestBackground(t *testing.T) {
	_, i := toolchain(t, "python3")
	all := rules()
	all.Repos[0].BackgroundWall = time.Hour
	for _, tt := range []struct {
		name       string
		background bool
		asked      job.Limits
		usual      time.Duration
		want       time.Duration // 0 is denied
	}{
		{"in front", false, job.Limits{}, 0, 30 * time.Second},
		{"in front, too long", false, job.Limits{Wall: 2 * time.Minute}, 0, 0},
		{"in the background", true, job.Limits{Wall: 2 * time.Minute}, 0, 2 * time.Minute},
		{"in the background, by default", true, job.Limits{}, 0, 30 * time.Second},
		{"in the background, as usual", true, job.Limits{}, 10 * time.Minute, 10 * time.Minute},
		{"in the background, more than usual", true, job.Limits{}, 10 * time.Hour, time.Hour},
		{"in the background, too long", true, job.Limits{Wall: 2 * time.Hour}, 0, 0},
	} {
		r := request()
		r.Background, r.Limits, r.Usual.Wall = tt.background, tt.asked, tt.usual
		d := decide(t, all, i, r)
		if d.Allowed() != (tt.want != 0) || d.Allowed() && d.Spec.Limits.Wall != tt.want {
			t.Errorf("%s: %v, %v", tt.name, d.Reasons, d.Spec.Limits.Wall)
		}
	}
	all.Repos[0].BackgroundWall = 0 // nothing of its own
	r := request()
	r.Background, r.Limits.Wall = true, 2*time.Minute
	if d := decide(t, all, i, r); d.Allowed() {
		t.Error("a job in the background has more time, and nobody said so")
	}
}

// TestRunnable: the runtimes that there are programs for, and that may be used.
func TestRunnable(t *testing.T) {
	dir, i := toolchain(t, "python3", "bash", "node")
	for _, tt := range []struct {
		name   string
		change func(r *Rules)
		want   []string
	}{
		{"all", func(*Rules) {}, []string{"python", "shell", "node"}},
		{"a list of runtimes", func(r *Rules) { r.Runtimes = []string{"node", "elixir"} }, []string{"node"}},
		{"a list of executables", func(r *Rules) { r.Executables = []string{"python3", dir + "/bash"} }, []string{"python", "shell"}},
		{"no repository has it", func(r *Rules) { r.Repos[0].Runtimes = []string{"shell"} }, []string{"shell"}},
		{"no repository", func(r *Rules) { r.Repos = nil }, nil},
	} {
		all := rules()
		tt.change(&all)
		p, err := New(all, i)
		if err != nil {
			t.Fatal(err)
		}
		got := p.Runnable()
		if tt.name == "a list of runtimes" { // whether the host has the other is not known
			got = slices.DeleteFunc(got, func(name string) bool { return name == "elixir" })
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q", tt.name, got)
		}
	}
	if p, err := New(rules(), lang.Installed{}); err != nil || p.Runnable() != nil {
		t.Errorf("without programs: %v, %q", err, p.Runnable())
	}
}
