package commands

import (
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/store/audit"
)

// TestAuditPlaces checks that claims of front-ends are printed without affecting the text around them. The audit log bounds
// them.
func TestAuditPlaces(t *testing.T) {
	sandboxtest.CheckShown(t, []sandboxtest.Place{
		{Name: "audit record", Lines: 1, Shows: func(s string) string {
			return audit.Format(&audit.Record{Event: audit.Decided, Message: s, Reached: s, Claimed: map[string]string{"principal": s, "reason": s}})
		}},
		{Name: "network log", Lines: 1, Shows: func(s string) string {
			first := &audit.Record{Repo: s, Claimed: map[string]string{"principal": s, "tool": s}}
			return strings.TrimSuffix(networkLines(first, &audit.Record{Instance: "main", Job: "job-1", Reached: s}, nil), "\n")
		}},
	})
}
