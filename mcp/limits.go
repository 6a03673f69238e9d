package mcp

import "sync"

// A budget is a number of bytes that many share, each of whom has at most a share of it.
type budget struct {
	mu    sync.Mutex
	left  int64            // guarded by mu
	share int64            // of one
	taken map[string]int64 // guarded by mu, by who has it
}

func newBudget(share int64) *budget {
	return &budget{left: maxBodies, share: share, taken: map[string]int64{}}
}

// take takes n bytes, and reports whether there were so many.
func (b *budget) take(who string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.left || b.taken[who]+n > b.share {
		return false
	}
	b.left -= n
	b.taken[who] += n
	return true
}

func (b *budget) give(who string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += n
	if b.taken[who] -= n; b.taken[who] == 0 {
		delete(b.taken, who)
	}
}
