package index

import "context"

// makeRoom evicts the oldest sources until cost fits, and if adding is 0, one more source. It then evicts some more, so
// that this is rarely necessary. adding is the id of the source being added.
func (x *Index) makeRoom(ctx context.Context, b *base, cost, adding int64) error {
	allowed := load{cost: x.maxBytes - cost, sources: x.sources}
	if adding == 0 {
		allowed.sources--
	}
	held, err := loadOf(ctx, b.database)
	if err != nil || held.within(allowed) {
		return err
	}
	if err := removeMarked(ctx, b.database); err != nil { // they would be removed in the background otherwise
		return err
	}
	if held, err = loadOf(ctx, b.database); err != nil || held.within(allowed) {
		return err
	}
	target := load{cost: max(0, allowed.cost-x.maxBytes/16), sources: allowed.sources - allowed.sources/16}
	if held, err = evict(ctx, b.database, held, target, adding); err != nil {
		return err
	}
	if err := removeMarked(ctx, b.database); err != nil {
		return err
	}
	if !held.within(allowed) { // the rest is being added now
		return errEnough
	}
	return nil
}
