package index

import (
	"log/slog"
	"time"
)

// idleCheckInterval is how often idle bases are looked for: when an index is opened, and when it is used after that time.
const idleCheckInterval = 24 * time.Hour

// checkIdle removes, in the background, bases that have not been written to for longer than TTL, since they may never be
// opened and swept again. The caller holds x.mu.
func (x *Index) checkIdle() {
	now := x.now()
	if since := now.Sub(x.lastIdleCheck); !x.lastIdleCheck.IsZero() && since < idleCheckInterval {
		return
	}
	x.lastIdleCheck = now
	x.work.Go(func() {
		err := removeIdle(x.ctx, x.state, now.Add(-x.ttl))
		if err != nil && x.ctx.Err() == nil {
			x.log.Warn("removing idle knowledge bases failed", slog.String("error", err.Error()))
		}
	})
}
