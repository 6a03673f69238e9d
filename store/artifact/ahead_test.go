package artifact

import (
	"fmt"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// TestEvictsInBackground: in a large store, the oldest artifacts are evicted in the background before the quota is
// reached, and no more than necessary.
func TestEvictsInBackground(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s := openStore(t, dir, Options{Now: c.now, MaxCount: 256})
	var handles []string
	for i := range 249 {
		c.advance(time.Second)
		handles = append(handles, put(t, s, mine(), fmt.Sprint(i), "").Handle())
	}
	sandboxtest.Eventually(t, 5*time.Second, "artifacts are evicted", func() bool { return usageOf(t, dir).count == 240 })
	list, err := s.disk.List()
	if err != nil || len(list) != 240 || list[0].Handle != handles[9] || usageOf(t, dir) != total(list) {
		t.Fatalf("%d artifacts remain, %v; the recorded usage is %+v", len(list), err, usageOf(t, dir))
	}
	if got, _, err := content(s, ada, handles[9]); err != nil || got != "9" {
		t.Errorf("the oldest remaining artifact: %q, %v", got, err)
	}
}
