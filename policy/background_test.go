package policy

import (
	"slices"
	"testing"
	"time"

	"corral/job"
	"corral/policy/runtimes"
)

// TestBackground: a background job has a maximum time of its own.
func TestBackground(t *testing.T) {
	_, i := toolchain(t, "python3")
	all := rules()
	all.Repos[0].BackgroundWall = time.Hour
	for _, tt := range []struct {
		name       string
		background bool
		asked      job.Limits
		usual      time.Duration
		want       time.Duration // 0 means denied
	}{
		{"foreground", false, job.Limits{}, 0, 30 * time.Second},
		{"foreground, too long", false, job.Limits{Wall: 2 * time.Minute}, 0, 0},
		{"background", true, job.Limits{Wall: 2 * time.Minute}, 0, 2 * time.Minute},
		{"background, by default", true, job.Limits{}, 0, 30 * time.Second},
		{"background, as usual", true, job.Limits{}, 10 * time.Minute, 10 * time.Minute},
		{"background, more than usual", true, job.Limits{}, 10 * time.Hour, time.Hour},
		{"background, too long", true, job.Limits{Wall: 2 * time.Hour}, 0, 0},
	} {
		r := request()
		r.Background, r.Limits, r.Usual.Wall = tt.background, tt.asked, tt.usual
		d := decide(t, all, i, r)
		if d.Allowed() != (tt.want != 0) || d.Allowed() && d.Spec.Limits.Wall != tt.want {
			t.Errorf("%s: %v, %v", tt.name, d.Reasons, d.Spec.Limits.Wall)
		}
	}
	all.Repos[0].BackgroundWall = 0 // no maximum of its own
	r := request()
	r.Background, r.Limits.Wall = true, 2*time.Minute
	if d := decide(t, all, i, r); d.Allowed() {
		t.Error("a background job got more time than the ceiling, without a maximum of its own")
	}
}

// TestRunnable: the runtimes that have a program on this host and are permitted.
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
		if tt.name == "a list of runtimes" { // the host may have elixir or not
			got = slices.DeleteFunc(got, func(name string) bool { return name == "elixir" })
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q", tt.name, got)
		}
	}
	if p, err := New(rules(), runtimes.Installed{}); err != nil || p.Runnable() != nil {
		t.Errorf("without programs: %v, %q", err, p.Runnable())
	}
}
