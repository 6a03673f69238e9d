package artifact

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/store/at"
)

// TestSyncTimer: each group of artifacts is synced by a timer of its own.
func TestSyncTimer(t *testing.T) {
	dir, err := unix.Open(t.TempDir(), at.Dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	y := newSyncer(dir)
	defer y.close()
	for range 2 {
		fd, err := at.Open(dir, ".", at.Dir)
		if err != nil {
			t.Fatal(err)
		}
		y.add([]int{fd})
		sandboxtest.Eventually(t, 20*time.Second, "the artifact is synced", func() bool {
			y.mu.Lock()
			defer y.mu.Unlock()
			return len(y.fds) == 0 && !y.due
		})
	}
}
