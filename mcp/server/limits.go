package server

import "sync"

// A budget is a number of bytes shared by several principals, with a maximum for each.
type budget struct {
	mu    sync.Mutex
	left  int64            // guarded by mu
	share int64            // maximum of one principal
	taken map[string]int64 // guarded by mu, by principal
}

func newBudget(share int64) *budget {
	return &budget{left: maxBodies, share: share, taken: map[string]int64{}}
}

// reserve reserves n bytes for who and reports whether they were available.
func (b *budget) reserve(who string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.left || b.taken[who]+n > b.share {
		return false
	}
	b.left -= n
	b.taken[who] += n
	return true
}

func (b *budget) release(who string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += n
	if b.taken[who] -= n; b.taken[who] == 0 {
		delete(b.taken, who)
	}
}
