package commands

import (
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// TestRootfsPlaces checks that the unpacker's error is printed without affecting the text around it.
func TestRootfsPlaces(t *testing.T) {
	sandboxtest.CheckShown(t, []sandboxtest.Place{
		{Name: "unpacker's error", Lines: 1, Most: 4200, Shows: func(s string) string {
			return unpackFailure(&job.Result{}, "corral-layer: x"+s).Error()
		}},
	})
}
