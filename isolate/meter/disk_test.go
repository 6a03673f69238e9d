package meter

import (
	"testing"
	"time"

	"corral/job"
)

// TestAllowMoreTime: a job with queued descriptors gets more time until both the time has passed and there were enough checks,
// but none once the free space has fallen too far.
func TestAllowMoreTime(t *testing.T) {
	w := &diskWatch{Disk: Disk{Limits: job.Limits{Disk: 1 << 20, Inodes: job.Unlimited}}}
	for n := 1; n < passedChecks; n++ {
		if !w.allowMoreTime() {
			t.Fatalf("no more time after %d checks", n)
		}
		w.passed = time.Now().Add(-passedPatience) // each check takes that long
	}
	if w.allowMoreTime() {
		t.Error("more time after enough checks")
	}
	w.passed = time.Now()
	if !w.allowMoreTime() {
		t.Error("no more time although little has passed")
	}
	w.passed = time.Time{} // a check has found none
	if w.baseBytes = passedBytes + 1<<20; !w.allowMoreTime() {
		t.Error("no more time for a new run of checks")
	}
	if w.baseBytes++; w.allowMoreTime() {
		t.Error("more time although the free space has fallen too far")
	}
}
