package sessions

import (
	"testing"

	"corral/isolate/admit"
	"corral/isolate/wire"
	"corral/job"
)

// TestTurnExclusion: which jobs of a session may run concurrently.
func TestTurnExclusion(t *testing.T) {
	apply := &admit.Request{Run: wire.Run{Tool: string(job.ToolChanges)}}
	look := &admit.Request{Run: wire.Run{Tool: string(job.ToolChanges), Flags: wire.FlagReadOnly}}
	work := &admit.Request{Run: wire.Run{Flags: wire.FlagOverlay}}
	read := &admit.Request{Run: wire.Run{Flags: wire.FlagReadOnly}} // in a session with a root of its own, where it can write outside the repository
	for _, tt := range []struct {
		name         string
		first, other *admit.Request
		want         bool
	}{
		{"two jobs", work, work, true},
		{"job, look", work, look, true},
		{"look, job", look, work, true},
		{"look, apply", look, apply, true},
		{"apply, look", apply, look, true},
		{"job, apply", work, apply, false},
		{"apply, job", apply, work, false},
		{"job that only reads, apply", read, apply, false},
		{"apply, job that only reads", apply, read, false},
		{"two applies", apply, apply, false},
	} {
		ss := &Session{}
		done, err := ss.startTurn(tt.first)
		if err != nil {
			t.Fatal(err)
		}
		also, err := ss.startTurn(tt.other)
		if (err == nil) != tt.want {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err == nil {
			also()
		}
		done()
		if ss.writers != 0 || ss.applying {
			t.Errorf("%s: %d writers, applying %v afterwards", tt.name, ss.writers, ss.applying)
		}
		for _, q := range []*admit.Request{apply, work} {
			done, err := ss.startTurn(q)
			if err != nil {
				t.Errorf("%s, and then: %v", tt.name, err)
				continue
			}
			done()
		}
	}
}
