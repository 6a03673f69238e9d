package isolate

import (
	"sync"
	"time"
)

// Bounds of what one user's requests that come to nothing add to the log: they cost the user nothing. A thousand at once
// is a front-end that denies what hundreds of clients ask for; the rate makes about 1 GB a day of usual claims, and 30 GB of
// those that are nothing but escapes.
const (
	denialBurst = 1024
	denialRate  = 16 // records a second
	denialPause = 10 * time.Second
)

// denials is a token bucket (Turner, New Directions in Communications, 1986) for each user. The zero value is ready.
type denials struct {
	mu      sync.Mutex
	buckets map[Peer]*bucket // guarded by mu
}

type bucket struct {
	tokens  float64
	at      time.Time // of tokens
	dropped uint64
	since   time.Time // of dropped
}

// counted is the peer as far as records are counted: all connections of one user are one.
func (p Peer) counted() Peer { return Peer{UID: p.payer(), Embedded: p.Embedded} }

// take says whether a record may be written. first says that it is the first that may not be since the last flush.
func (d *denials) take(peer Peer, now time.Time) (allowed, first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.buckets[peer]
	if b == nil {
		d.forget(now)
		b = &bucket{tokens: denialBurst, at: now}
		d.buckets[peer] = b
	}
	b.refill(now)
	if b.tokens >= 1 {
		b.tokens--
		return true, false
	}
	return false, b.drop(now)
}

// drop counts a record that take allowed and that was not written. first is as take has it.
func (d *denials) drop(peer Peer, now time.Time) (first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.buckets[peer]
	if b == nil { // full again, and forgotten
		b = &bucket{tokens: denialBurst, at: now}
		d.buckets[peer] = b
	}
	return b.drop(now)
}

func (b *bucket) drop(now time.Time) (first bool) {
	if b.dropped++; b.dropped > 1 {
		return false
	}
	b.since = now
	return true
}

func (b *bucket) refill(now time.Time) {
	b.tokens = min(denialBurst, b.tokens+max(0, now.Sub(b.at).Seconds())*denialRate)
	b.at = now
}

// forget drops the users whose buckets are full again, so that there are no more of them than users who were busy lately.
func (d *denials) forget(now time.Time) {
	if d.buckets == nil {
		d.buckets = map[Peer]*bucket{}
	}
	for peer, b := range d.buckets {
		if b.refill(now); b.tokens == denialBurst && b.dropped == 0 {
			delete(d.buckets, peer)
		}
	}
}

// flush calls write with what was dropped of each user since the last flush.
func (d *denials) flush(write func(peer Peer, count uint64, since time.Time)) {
	d.mu.Lock()
	dropped := map[Peer]bucket{}
	for peer, b := range d.buckets {
		if b.dropped > 0 {
			dropped[peer] = *b
			b.dropped = 0
		}
	}
	d.mu.Unlock()
	for peer, b := range dropped {
		write(peer, b.dropped, b.since)
	}
}
