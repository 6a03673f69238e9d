package isolate

import (
	"testing"

	"corral/internal/sandboxtest"
)

// TestScore: when the host is out of memory jobs go first, and none can say otherwise.
func TestScore(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.SysResource)
	f := newFront(t)
	for _, score := range []string{"0", "499", "-1000"} {
		if got := f.sh("echo " + score + " >/proc/self/oom_score_adj; cat /proc/self/oom_score_adj"); got != "500" {
			t.Errorf("a job that wants %s has %s", score, got)
		}
	}
	if got := f.sh("echo 700 >/proc/self/oom_score_adj; cat /proc/self/oom_score_adj"); got != "700" {
		t.Errorf("a job that wants 700 has %s", got)
	}
}
