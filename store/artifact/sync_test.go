package artifact

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/store/at"
)

// TestSyncTimer: an artifact is synced by a timer that was started for it in advance; after that timer has run it gets
// its own.
func TestSyncTimer(t *testing.T) {
	dir, err := unix.Open(t.TempDir(), at.Dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	y := newSyncer(dir)
	defer y.close()
	state := func() (waiting int, due bool) {
		y.mu.Lock()
		defer y.mu.Unlock()
		return len(y.fds), y.due
	}
	for _, early := range []bool{true, false} {
		if y.wind(); !early {
			sandboxtest.Eventually(t, 20*time.Second, "the timer without an artifact expires", func() bool {
				_, due := state()
				return !due
			})
		}
		fd, err := at.Open(dir, ".", at.Dir)
		if err != nil {
			t.Fatal(err)
		}
		y.add([]int{fd})
		sandboxtest.Eventually(t, 20*time.Second, "the artifact is synced", func() bool {
			waiting, due := state()
			return waiting == 0 && !due
		})
	}
}
