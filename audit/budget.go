package audit

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrBudget is wrapped by the error of a record that would take more of the log than its user may have by now.
var ErrBudget = errors.New("this user's share of the audit log is used up")

// DefaultUserDaily is what one user's records may take in a day, in bytes: some 16 jobs a second.
const DefaultUserDaily = 2 << 30

// burstShare is the part of a day's bytes that a user may have written at once: an eighth, which is 170,000 jobs of the default.
const burstShare = 8

// A payer is whose bytes are counted together.
type payer struct {
	uid      uint32
	embedded bool
}

// budgets hold a token bucket of bytes (Turner, New Directions in Communications, 1986) for each user. What one user has jobs
// run, or fail, for bounds what the log grows by.
type budgets struct {
	daily int64            // bytes; 0 is no bound
	now   func() time.Time // for tests

	mu    sync.Mutex
	users map[payer]*purse // guarded by mu
}

type purse struct {
	bytes float64
	at    time.Time // of bytes
}

func (b *budgets) burst() float64 { return float64(b.daily) / burstShare }

func (b *budgets) refill(p *purse, now time.Time) {
	p.bytes = min(b.burst(), p.bytes+max(0, now.Sub(p.at).Seconds())*float64(b.daily)/(24*60*60))
	p.at = now
}

// take takes n bytes from a user, or as an error says why not. What is owed was promised: it is taken in any case, and may leave
// a debt. Root has no bound.
func (b *budgets) take(w *Who, n int, owed bool) error {
	if b.daily == 0 || w.Peer == 0 && !w.Embedded {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now, who := b.now(), payer{cmp.Or(w.Payer, w.Peer), w.Embedded}
	p := b.users[who]
	if p == nil {
		b.forget(now)
		p = &purse{bytes: b.burst(), at: now}
		b.users[who] = p
	}
	b.refill(p, now)
	if p.bytes < float64(n) && !owed {
		return fmt.Errorf("audit: %w: %d MiB at once and %d MiB a day\nhint: run fewer jobs, or have the operator raise audit.user_daily",
			ErrBudget, b.daily/burstShare>>20, b.daily>>20)
	}
	p.bytes -= float64(n)
	return nil
}

// forget drops the users whose bytes are all there again.
func (b *budgets) forget(now time.Time) {
	if b.users == nil {
		b.users = map[payer]*purse{}
	}
	for who, p := range b.users {
		if b.refill(p, now); p.bytes >= b.burst() {
			delete(b.users, who)
		}
	}
}
