package cell

import (
	"sync/atomic"

	"corral/internal/fault"
)

// A slotBudget bounds the waiting slots of all jails. When none is left, the pool that has been unused for the longest
// time gives up a slot.
type slotBudget struct {
	max     int64        // maximum of waiting slots; negative is none
	waiting atomic.Int64 // slots that wait or are being made to wait

	mu    fault.Mutex
	pools map[*pool]struct{} // guarded by mu
}

func newSlotBudget(maximum int) *slotBudget {
	return &slotBudget{max: int64(maximum), pools: map[*pool]struct{}{}}
}

// join adds a pool whose slots others may get.
func (b *slotBudget) join(p *pool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pools[p] = struct{}{}
}

// leave removes a pool, which has returned its slots.
func (b *slotBudget) leave(p *pool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pools, p)
}

// reserve counts one more waiting slot, and reports whether p may have it.
func (b *slotBudget) reserve(p *pool) bool {
	for b.waiting.Add(1) > b.max {
		b.waiting.Add(-1)
		if other := b.longestUnused(p); other == nil || !other.give() {
			return false
		}
	}
	return true
}

// giveBack counts n waiting slots less.
func (b *slotBudget) giveBack(n int) { b.waiting.Add(-int64(n)) }

// longestUnused returns the pool with waiting slots to which no job came for the longest time, if that is longer than
// for p.
func (b *slotBudget) longestUnused(p *pool) (longest *pool) {
	when, _ := p.lastJob()
	b.mu.Lock()
	defer b.mu.Unlock()
	for other := range b.pools {
		if last, some := other.lastJob(); some && last.Before(when) {
			longest, when = other, last
		}
	}
	return longest
}
