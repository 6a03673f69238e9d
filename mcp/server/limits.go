package server

import "corral/internal/ratelimit"

// A budget is maxBodies bytes shared by several principals, with a maximum for each.
type budget struct {
	held  ratelimit.Shares // by principal
	share int64            // maximum of one principal
}

func newBudget(share int64) *budget { return &budget{share: share} }

// reserve reserves n bytes for who and reports whether they were available.
func (b *budget) reserve(who string, n int64) bool {
	return b.held.Take(who, n, func(all, own int64) bool { return all <= maxBodies && own <= b.share })
}

func (b *budget) release(who string, n int64) { b.held.Return(who, n) }
