package index

import (
	"context"
	"log/slog"
)

// A base is an open knowledge base that several operations may use. Its fields are guarded by the mu of the Index.
type base struct {
	*database
	refs     int
	used     uint64
	removing bool // a background goroutine is removing sources
	gone     bool // no longer in Index.open; closed when refs is 0
}

// maxOpen is how many unused bases stay open. Each takes some MiB of memory.
const maxOpen = 4

// acquire returns a base, and opens it if necessary. If it has no file, acquire creates it if create is set, and
// otherwise returns errNone. The caller must release the base.
func (x *Index) acquire(ctx context.Context, id Base, create bool) (*base, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case x.opening <- struct{}{}:
		defer func() { <-x.opening }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if b := x.opened(id); b != nil {
		return b, nil
	}
	open, recreated, err := openDatabase(ctx, x.state, id, create, x.log)
	if recreated {
		x.startRebuild(id)
	}
	if err != nil {
		return nil, err
	}
	b := &base{database: open}
	x.mu.Lock()
	x.open[id] = b
	b.refs++
	x.mu.Unlock()
	x.trim()
	return b, nil
}

// opened returns a base that is open and has not been purged since, or nil.
func (x *Index) opened(id Base) *base {
	x.mu.Lock()
	b := x.open[id]
	if b != nil && b.Exists() {
		defer x.mu.Unlock()
		b.refs++
		x.clock++
		b.used = x.clock
		return b
	}
	x.mu.Unlock()
	if b != nil {
		x.drop(b)
	}
	return nil
}

// release returns a base that was acquired.
func (x *Index) release(b *base) {
	x.mu.Lock()
	b.refs--
	last := b.gone && b.refs == 0
	x.mu.Unlock()
	if last {
		x.closeBase(b)
	}
}

// drop makes the next acquire open the base again. The base is closed once it is released.
func (x *Index) drop(b *base) {
	x.mu.Lock()
	if b.gone {
		x.mu.Unlock()
		return
	}
	b.gone = true
	if x.open[b.ID] == b {
		delete(x.open, b.ID)
	}
	last := b.refs == 0
	x.mu.Unlock()
	if last {
		x.closeBase(b)
	}
}

// trim closes the least recently used of the unused bases.
func (x *Index) trim() {
	for {
		x.mu.Lock()
		var oldest *base
		idle := 0
		for _, b := range x.open {
			if b.refs > 0 {
				continue
			}
			idle++
			if oldest == nil || b.used < oldest.used {
				oldest = b
			}
		}
		x.mu.Unlock()
		if idle <= maxOpen {
			return
		}
		x.drop(oldest)
	}
}

func (x *Index) closeBase(b *base) {
	if err := b.Close(); err != nil {
		x.log.Warn("closing a knowledge base failed", slog.String("error", err.Error()))
	}
}
