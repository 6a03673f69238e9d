package index

import (
	"context"

	"corral/store/index/batch"
	"corral/store/index/reclaim"
)

// makeRoom evicts the oldest sources until cost fits, and if adding is 0, one more source. It then evicts some more, so
// that this is rarely necessary. adding is the id of the source being added.
func (x *Index) makeRoom(ctx context.Context, b *base, cost, adding int64) error {
	allowed := reclaim.Load{Cost: x.maxBytes - cost, Sources: x.sources}
	if adding == 0 {
		allowed.Sources--
	}
	held, err := reclaim.LoadOf(ctx, b.Base)
	if err != nil || held.Within(allowed) {
		return err
	}
	if err := reclaim.Marked(ctx, b.Base); err != nil { // they would be removed in the background otherwise
		return err
	}
	if held, err = reclaim.LoadOf(ctx, b.Base); err != nil || held.Within(allowed) {
		return err
	}
	target := reclaim.Load{Cost: max(0, allowed.Cost-x.maxBytes/16), Sources: allowed.Sources - allowed.Sources/16}
	if held, err = reclaim.Evict(ctx, b.Base, held, target, adding); err != nil {
		return err
	}
	if err := reclaim.Marked(ctx, b.Base); err != nil {
		return err
	}
	if !held.Within(allowed) { // the rest is being added now
		return batch.ErrEnough
	}
	return nil
}
