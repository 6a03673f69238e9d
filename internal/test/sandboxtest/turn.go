package sandboxtest

import (
	"errors"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// turn is this process's share of a lock on the machine. Tests that examine the whole machine (Leaks) hold it exclusively,
// tests that change something there (Require with Root) hold it shared. It is for test processes that `go test` runs in
// parallel; scripts/test gives each process a machine of its own.
var turn struct {
	mu      sync.Mutex
	file    *os.File // guarded by mu; opened at the first use
	holders int      // guarded by mu: tests of this process that hold the lock
}

const turnPath = "/run/corral-tests.lock"

// holdMachine locks the machine until the end of the test, exclusively (unix.LOCK_EX) or shared (unix.LOCK_SH). It waits
// for conflicting locks.
func holdMachine(t testing.TB, how int) {
	t.Helper()
	if os.Getenv("CORRAL_TEST_MACHINE") == "own" || os.Geteuid() != 0 {
		return
	}
	turn.mu.Lock()
	defer turn.mu.Unlock()
	if turn.file == nil {
		f, err := os.OpenFile(turnPath, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		turn.file = f
	}
	// One lock serves all tests of the process. Converting it releases it first (flock(2)), so two processes that both
	// convert it do not deadlock.
	if turn.holders == 0 || how == unix.LOCK_EX {
		if err := flock(turn.file, how); err != nil {
			t.Fatal(err)
		}
	}
	turn.holders++
	t.Cleanup(func() {
		turn.mu.Lock()
		defer turn.mu.Unlock()
		if turn.holders--; turn.holders == 0 {
			if err := flock(turn.file, unix.LOCK_UN); err != nil {
				t.Error(err)
			}
		}
	})
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
