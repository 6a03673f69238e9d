package audit

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"corral/internal/fault"
	"corral/internal/ratelimit"
)

// ErrBudget is wrapped by the error for a record that would exceed its user's share of the audit log.
var ErrBudget = errors.New("this user's share of the audit log is used up")

// DefaultUserDaily is the default of Options.UserDaily in bytes: about 16 jobs a second.
const DefaultUserDaily = 2 << 30

// burstShare is the fraction of a day's bytes that a user may use at once: an eighth, which is 170,000 jobs by
// default.
const burstShare = 8

// A payer identifies the records that are counted together.
type payer struct {
	uid      uint32
	embedded bool
}

// budgets holds a bucket of bytes for each user. It bounds the
// growth of the audit log caused by one user, whether its jobs run or fail.
type budgets struct {
	daily int64            // bytes; 0 means no bound
	now   func() time.Time // replaced by tests

	mu    fault.Mutex
	users map[payer]*ratelimit.Bucket // guarded by mu
}

func (b *budgets) rate() ratelimit.Rate {
	return ratelimit.Rate{Burst: float64(b.daily) / burstShare, PerSecond: float64(b.daily) / (24 * 60 * 60)}
}

// spend takes n bytes from a user's bucket, or returns an error that wraps ErrBudget. Promised bytes are always
// taken, and may leave the bucket negative. Root has no bound.
func (b *budgets) spend(w *Who, n int, promised bool) error {
	if b.daily == 0 || w.Peer == 0 && !w.Embedded {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now, who := b.now(), payer{cmp.Or(w.Payer, w.Peer), w.Embedded}
	p := b.users[who]
	if p == nil {
		b.forget(now)
		p = &ratelimit.Bucket{}
		b.users[who] = p
	}
	if p.Left(b.rate(), now) < float64(n) && !promised {
		return fmt.Errorf("audit: %w: %d MiB at once and %d MiB a day\nhint: run fewer jobs, or have the operator raise audit.user_daily",
			ErrBudget, b.daily/burstShare>>20, b.daily>>20)
	}
	p.Spend(b.rate(), now, float64(n))
	return nil
}

// forget drops the users whose buckets are full again.
func (b *budgets) forget(now time.Time) {
	if b.users == nil {
		b.users = map[payer]*ratelimit.Bucket{}
	}
	for who, p := range b.users {
		if p.Full(b.rate(), now) {
			delete(b.users, who)
		}
	}
}
