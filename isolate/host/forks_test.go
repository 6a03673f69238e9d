package host

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestAwaitForks: the wait is for all processes that are being started when it begins, but not for one that does not get on.
func TestAwaitForks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		AwaitForks(t.Context()) // nothing is being started
		first, second := Forking(), Forking()
		returned := false
		go func() {
			AwaitForks(t.Context())
			returned = true
		}()
		first()
		if synctest.Wait(); returned {
			t.Error("the wait ended before the second process had executed its program")
		}
		second()
		if synctest.Wait(); !returned {
			t.Error("the wait did not end with the second process")
		}
		third, begin := Forking(), time.Now()
		if AwaitForks(t.Context()); time.Since(begin) != forkPatience { // the bubble's time
			t.Errorf("waited for %v", time.Since(begin))
		}
		third()
		if len(forks.running) != 0 {
			t.Errorf("%d processes are still noted", len(forks.running))
		}
	})
}
