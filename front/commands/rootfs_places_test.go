package commands

import (
	"testing"

	"corral/internal/text/texttest"
	"corral/job"
)

// TestRootfsPlaces checks that the unpacker's error is printed without affecting the text around it.
func TestRootfsPlaces(t *testing.T) {
	texttest.Check(t, []texttest.Place{
		{Name: "unpacker's error", Lines: 1, Most: 4200, Shows: func(s string) string {
			return unpackFailure(&job.Result{}, "corral-layer: x"+s).Error()
		}},
	})
}
