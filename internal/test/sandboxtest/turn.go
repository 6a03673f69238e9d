package sandboxtest

import (
	"errors"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// turn is this process's share of the machine: a lock that tests which look at the whole machine hold alone (Leaks), and
// those that make something there hold together (Require with Root). It is for test processes that `go test` runs side by
// side; scripts/test gives each a machine of its own.
var turn struct {
	mu      sync.Mutex
	file    *os.File // guarded by mu; open from the first use on
	holders int      // guarded by mu: tests of this process that hold the lock
}

const turnPath = "/run/corral-tests.lock"

// holdMachine has the test hold the machine until its end: alone, if how is unix.LOCK_EX, or with others, unix.LOCK_SH.
// It waits for those who hold it otherwise.
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
	// One lock serves all tests of the process. To convert it is to give it up first (flock(2)): two processes that both
	// want it alone do not wait for each other.
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
