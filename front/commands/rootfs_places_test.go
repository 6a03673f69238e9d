package commands

import (
	"testing"

	"corral/internal/text/texttest"
)

// TestRootfsPlaces checks that the unpacker's error is printed without affecting the text around it.
func TestRootfsPlaces(t *testing.T) {
	texttest.Check(t, []texttest.Place{
		{Name: "unpacker's error", Lines: 1, Most: 4200, Shows: func(s string) string {
			f := &imageFeed{stderr: &capture{}}
			f.stderr.text.WriteString("corral-layer: x" + s)
			return f.failure().Error()
		}},
	})
}
