package run

import (
	"slices"
	"testing"
	"time"

	"corral/job"
)

// TestDuration: a duration is short to read, whatever its length.
func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ms", 999 * time.Millisecond: "999 ms", 2140 * time.Millisecond: "2.1 s", 99 * time.Second: "99.0 s", 3 * time.Minute: "3 min",
		99 * time.Minute: "99 min", 100 * time.Minute: "2 h", 48 * time.Hour: "2 days",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

// changing returns the record of a job of a session that has changed what entries say.
func changing(entries ...job.Change) job.Record {
	return job.Record{Changes: &job.Changes{Entries: entries}}
}

// TestChanged: a footer counts changes only if they are news, says why they are not listed, and names a few sensitive paths.
func TestChanged(t *testing.T) {
	for _, tt := range []struct {
		name   string
		record job.Record
		news   bool
		want   []string
	}{
		{"nothing", job.Record{}, true, nil},
		{"not listed", job.Record{ChangesReason: "timed out"}, false, []string{"changes not listed: timed out"}},
		{"git's own", changing(job.Change{Path: "a/.git/HEAD", Type: job.TypeFile}), true, []string{"a/.git/ changed, not applied"}},
		{"git's index", changing(job.Change{Path: ".git/index", Type: job.TypeFile}), true, nil},
		{"a file .git", changing(job.Change{Path: "a/.git", Type: job.TypeFile}), true, []string{"1 file changed, not applied"}},
		{"sensitive", job.Record{Result: job.Result{Sensitive: []string{"a\x1b", "b"}}}, true, []string{"sensitive path changed: \"a\\x1b\"", "sensitive path changed: b"}},
		{
			"of packages",
			job.Record{Result: job.Result{Sensitive: []string{"node_modules/a/.npmrc", "node_modules/b\x1b/.npmrc", ".git/hooks/c"}}},
			true,
			[]string{"sensitive path changed: .git/hooks/c", "2 sensitive paths changed below installed packages, such as node_modules/a/.npmrc"},
		},
	} {
		if got := Changed(&tt.record, tt.news); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
