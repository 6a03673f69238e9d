package artifact

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/sandboxtest"
)

// TestGroup: what comes in time for a timer that was set ahead is synced by it, and what comes when it has run has its own.
func TestGroup(t *testing.T) {
	dir, err := unix.Open(t.TempDir(), dirFlags, 0)
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
			sandboxtest.Eventually(t, 20*time.Second, "a timer without an artifact has run", func() bool {
				_, due := state()
				return !due
			})
		}
		fd, err := openat(dir, ".", dirFlags)
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
