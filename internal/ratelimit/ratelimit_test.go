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

// TestLines: the line after omitted ones says how many.
func TestLines(t *testing.T) {
	var l Lines
	r, now := Rate{Burst: 2, PerSecond: 1}, time.Now()
	for n, want := range []bool{true, true, false, false} {
		if ok, omitted := l.Allow(r, now); ok != want || omitted != 0 {
			t.Errorf("line %d: %t, %d omitted", n, ok, omitted)
		}
	}
	now = now.Add(time.Hour)
	if l.Idle(r, now) {
		t.Error("what was omitted is forgotten")
	}
	if ok, omitted := l.Allow(r, now); !ok || omitted != 2 {
		t.Errorf("an hour later: %t, %d omitted", ok, omitted)
	}
	if now = now.Add(time.Hour); !l.Idle(r, now) {
		t.Error("nothing was omitted since, and it is not idle")
	}
}

// TestShares: what is held is counted for each and together, and nothing is left of those that hold nothing.
func TestShares(t *testing.T) {
	var s Shares
	most := func(all, own int64) bool { return all <= 10 && own <= 6 }
	for _, tt := range []struct {
		who  string
		n    int64
		want bool
	}{{"a", 6, true}, {"a", 1, false}, {"b", 5, false}, {"b", 4, true}, {"c", 1, false}} {
		if got := s.Take(tt.who, tt.n, most); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
	s.Return("a", 6)
	if all, holders := s.Held(); all != 4 || holders != 1 {
		t.Errorf("%d of %d", all, holders)
	}
}
