package egress

import (
	"sync/atomic"
	"time"
)

// A budget counts what is left of something.
type budget struct{ left atomic.Int64 }

func newBudget(n int) *budget {
	b := new(budget)
	b.left.Store(int64(n))
	return b
}

// take takes n, or returns false if fewer are left.
func (b *budget) take(n int) bool {
	if b.left.Add(-int64(n)) < 0 {
		b.give(n)
		return false
	}
	return true
}

func (b *budget) give(n int) { b.left.Add(int64(n)) }

// A meter counts bytes in one direction.
type meter struct {
	total    atomic.Int64
	reported int64 // guarded by record.mu
	limit    atomic.Int64
}

// add counts n bytes, and returns how many of them are within the limit.
func (m *meter) add(n int) int {
	total, limit := m.total.Add(int64(n)), m.limit.Load()
	if limit <= 0 || total <= limit {
		return n
	}
	over := min(int64(n), total-limit)
	m.total.Add(-over)
	return n - int(over)
}

// exhausted reports whether no byte is left.
func (m *meter) exhausted() bool {
	limit := m.limit.Load()
	return limit > 0 && m.total.Load() >= limit
}

// A rate bounds how often something happens: a number of times at once, and then once in each interval. It is not for concurrent
// use.
type rate struct {
	burst    int
	interval time.Duration
	used     int
	since    time.Time
}

// allows reports whether it may happen now.
func (r *rate) allows(now time.Time) bool {
	if n := int(now.Sub(r.since) / r.interval); n >= r.used {
		r.used, r.since = 0, now
	} else if n > 0 {
		r.used -= n
		r.since = r.since.Add(time.Duration(n) * r.interval)
	}
	if r.used >= r.burst {
		return false
	}
	r.used++
	return true
}
