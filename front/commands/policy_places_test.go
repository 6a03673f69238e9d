package commands

import (
	"bytes"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/job"
	"corral/policy"
)

// TestPolicyPlaces checks that a decision is printed without affecting the text around it.
func TestPolicyPlaces(t *testing.T) {
	sandboxtest.CheckShown(t, []sandboxtest.Place{
		{Name: "decision", Lines: 4, Shows: func(s string) string {
			var b bytes.Buffer
			if err := writeExplanation(&b, policy.Explanation{Steps: []policy.Step{{Rule: "repo", Outcome: "ok", Found: "is " + s}}, Decision: job.Decision{Rule: "x"}}); err != nil {
				t.Error(err)
			}
			return b.String()
		}},
	})
}
