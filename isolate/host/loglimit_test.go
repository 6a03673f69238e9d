package host

import (
	"testing"
	"time"
)

// TestLogLimit: a user has a burst of lines, then two per second, and the number of those left out is reported; other users have
// their own; users who are silent are forgotten.
func TestLogLimit(t *testing.T) {
	var l LogLimit
	now := time.Unix(1000, 0)
	written := func(uid uint32, n int) (written, omitted int) {
		for range n {
			ok, o := l.Allow(uid, now)
			if ok {
				written++
			}
			omitted += o
		}
		return written, omitted
	}
	if n, o := written(1, 1000); n != lineBurst || o != 0 {
		t.Errorf("at once: %d lines, %d omitted", n, o)
	}
	if n, _ := written(2, 5); n != 5 {
		t.Errorf("another user: %d lines of 5", n)
	}
	now = now.Add(3 * time.Second)
	if n, o := written(1, 1000); n != 3*lineRate || o != 1000-lineBurst {
		t.Errorf("after 3 s: %d lines, %d omitted", n, o)
	}
	now = now.Add(time.Hour)
	if _, o := written(1, 1); o != 1000-3*lineRate {
		t.Errorf("after an hour: %d omitted", o)
	}
	now = now.Add(time.Hour)
	if written(3, 1); len(l.users) != 1 {
		t.Errorf("%d users are kept", len(l.users))
	}
}
