package ratelimit

import (
	"testing"
	"time"
)

// TestBucket: a bucket begins full, fills with time and not beyond, and can be spent in advance.
func TestBucket(t *testing.T) {
	var b Bucket
	r, now := Rate{Burst: 3, PerSecond: 2}, time.Now()
	if left := b.Left(r, now); left != 3 || !b.Full(r, now) {
		t.Errorf("at first: %v left", left)
	}
	for n := range 4 {
		if got := b.Take(r, now); got != (n < 3) {
			t.Errorf("token %d: %t", n, got)
		}
	}
	if now = now.Add(time.Second); !b.Take(r, now) || b.Left(r, now) != 1 {
		t.Errorf("a second later: %v left", b.Left(r, now))
	}
	b.Spend(r, now, 6)
	if left := b.Left(r, now); left != -5 || b.Take(r, now) {
		t.Errorf("after 6 were spent: %v left", left)
	}
	if before := now.Add(-time.Hour); b.Left(r, before) != -5 {
		t.Errorf("a clock that goes back gives %v", b.Left(r, before))
	}
	if now = now.Add(time.Hour); b.Left(r, now) != 3 || !b.Full(r, now) {
		t.Errorf("an hour later: %v left", b.Left(r, now))
	}
}
