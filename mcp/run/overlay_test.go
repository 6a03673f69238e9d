package run

import (
	"testing"

	"corral/job"
)

// TestOverlayPatch: a reply has the handle of the patch, or the reason why there is none.
func TestOverlayPatch(t *testing.T) {
	for _, tt := range []struct {
		changes *job.Changes
		reason  string
		want    overlay
	}{
		{nil, "no room", overlay{Reason: "no room"}},
		{&job.Changes{Patch: "h"}, "", overlay{Patch: "h"}},
		{&job.Changes{Patch: "h", PatchIncomplete: true}, "", overlay{Patch: "h", PatchLess: true}},
		{&job.Changes{PatchReason: "disk\xff"}, "", overlay{Reason: "no patch: disk\uFFFD"}},
	} {
		r := &job.Record{Session: "s", Changes: tt.changes, ChangesReason: tt.reason}
		r.Decision.Spec.Workspace = job.Overlay
		got := overlayOf(r)
		if got.Handle != "s" || got.Patch != tt.want.Patch || got.PatchLess != tt.want.PatchLess || got.Reason != tt.want.Reason {
			t.Errorf("%+v, %q: %+v", tt.changes, tt.reason, got)
		}
		r.Decision.Spec.Workspace = job.Direct
		if got := overlayOf(r); got != (overlay{}) {
			t.Errorf("without an overlay: %+v", got)
		}
	}
}
