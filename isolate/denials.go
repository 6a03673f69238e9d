package isolate

import (
	"cmp"
	"slices"
	"time"

	"corral/internal/fault"
	"corral/internal/ratelimit"
	"corral/internal/text"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
)

// Bounds on the audit records of one user's failed requests, which cost the user nothing. A burst of a thousand is a
// front-end that denies requests of hundreds of clients. The rate allows about 1 GB a day with usual claims, and 30
// GB with claims that consist of escapes alone.
const (
	denialBurst = 1024
	denialRate  = 16 // records per second
	denialPause = 10 * time.Second
)

var denialLimit = ratelimit.Rate{Burst: denialBurst, PerSecond: denialRate}

// denialLimiter is a token bucket per user. The zero value is ready
// to use.
type denialLimiter struct {
	mu      fault.Mutex
	buckets map[host.Peer]*bucket // guarded by mu
}

type bucket struct {
	tokens  ratelimit.Bucket
	dropped uint64
	since   time.Time // when the first of dropped was counted
}

// denialKey returns the key of the peer's bucket: all connections of one user share it. An embedded supervisor has one
// client, with one account, which the record of the dropped requests names.
func denialKey(p host.Peer) host.Peer {
	key := host.Peer{UID: p.Payer(), Embedded: p.Embedded}
	if p.Embedded {
		key.Account = p.Account
	}
	return key
}

// allow reports whether a record may be written, and counts it as dropped if not. first reports that it is the first
// dropped record since the last flush.
func (d *denialLimiter) allow(peer host.Peer, now time.Time) (allowed, first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.buckets[peer]
	if b == nil {
		d.forgetFull(now)
		b = &bucket{}
		d.buckets[peer] = b
	}
	if b.tokens.Take(denialLimit, now) {
		return true, false
	}
	return false, b.drop(now)
}

// drop counts a record that allow permitted but that was not written. first is as in allow.
func (d *denialLimiter) drop(peer host.Peer, now time.Time) (first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.buckets[peer]
	if b == nil { // the bucket was full again and removed
		b = &bucket{}
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

// forgetFull removes full buckets, so that the number of buckets is bounded by the number of recently active users.
func (d *denialLimiter) forgetFull(now time.Time) {
	if d.buckets == nil {
		d.buckets = map[host.Peer]*bucket{}
	}
	for peer, b := range d.buckets {
		if b.tokens.Full(denialLimit, now) && b.dropped == 0 {
			delete(d.buckets, peer)
		}
	}
}

// flush calls write with the number of dropped records of each user since the last flush.
func (d *denialLimiter) flush(write func(peer host.Peer, count uint64, since time.Time)) {
	dropped := map[host.Peer]bucket{}
	fault.With(&d.mu, func() {
		for peer, b := range d.buckets {
			if b.dropped > 0 {
				dropped[peer] = *b
				b.dropped = 0
			}
		}
	})
	for peer, b := range dropped {
		write(peer, b.dropped, b.since)
	}
}

// maxRecent is how many denied and refused requests of a user are kept for lists, the last ones.
const maxRecent = 16

// recentDenials are the requests of each user that were denied or refused last, for lists: the audit log has all of them, and is root's.
// The zero value is ready to use.
type recentDenials struct {
	mu fault.Mutex
	by map[uint32][]wire.Denial // guarded by mu: by payer, the oldest first; payers are accounts of the machine
}

// add keeps a denied request of peer's, or the refusal of job id.
func (r *recentDenials) add(peer host.Peer, id, repo, reason string, c *job.Claim) {
	d := wire.Denial{
		At: time.Now().UnixNano(), UID: peer.UID, Job: id, Repo: text.Cut(repo, wire.MaxReason-len("…")),
		Reason: text.Cut(reason, wire.MaxReason-len("…")), Tool: c.Tool, Runtime: c.Runtime, Principal: c.Principal, Request: c.Request,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[uint32][]wire.Denial{}
	}
	list := append(r.by[peer.Payer()], d)
	r.by[peer.Payer()] = slices.Clone(list[max(0, len(list)-maxRecent):])
}

// of lists those that peer may see, its own or for root all, the oldest first.
func (r *recentDenials) of(peer host.Peer) (list []wire.Denial) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.by {
		for _, d := range one {
			if peer.UID == d.UID || peer.UID == 0 {
				list = append(list, d)
			}
		}
	}
	slices.SortFunc(list, func(a, b wire.Denial) int { return cmp.Compare(a.At, b.At) })
	return list
}
