package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"corral/mcp/ctxtools"
	"corral/store/index"
)

// TestHitsAreShort checks that a reply to a search shows few bytes of each place: the lines that have the most words of the query.
func TestHitsAreShort(t *testing.T) {
	var section strings.Builder
	for n := range 40 {
		fmt.Fprintf(&section, "10:%02d ERROR worker-%d timeout of the database\n", n, n)
	}
	section.WriteString("10:41 ERROR worker-7 payment gateway refused\n")
	now := time.Now()
	found := &ctxtools.Recalled{Left: 2}
	found.Matched = 9
	for n := range maxHits {
		found.Hits = append(found.Hits, index.Hit{Artifact: fmt.Sprintf("h%d", n), Stream: "stdout", Time: now.Add(-90 * time.Second), LineStart: 100, LineEnd: 140, Text: section.String()})
	}
	got := hits(found, "payment gateway error", now)
	if want := "h0, 90.0 s ago, lines 100-140 of stdout:\n140: 10:41 ERROR worker-7 payment gateway refused\n"; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "[4 more places, repositories not searched: 2, give repoId]") {
		t.Errorf("%q", got)
	}
	if got := hits(found, "timeout", now); len(got) > maxHits*(maxHitText+50)+50 || !strings.Contains(got, "100: 10:00 ERROR") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
