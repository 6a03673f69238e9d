package egress

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Bounds of requests that are served at once, where the package serves requests: each can have an answer of the host in memory that the job
// does not read. HTTP/2 has many on a connection.
const (
	maxRequests    = 128 // of a door
	maxAllRequests = 512 // of all doors, beside
	ownRequests    = 4   // of each door
	maxWaiting     = 256 // of a door, in addition
	maxWait        = 30 * time.Second
)

var errBusy = fmt.Errorf("the job or session makes %d requests at once, which is the maximum, or jobs of the user make %d",
	maxRequests, maxAllRequests)

// A budget counts how many of a number of things, such as descriptors, may still be used. Its methods may be called concurrently.
type budget struct{ left atomic.Int64 }

func newBudget(n int) *budget {
	b := new(budget)
	b.left.Store(int64(n))
	return b
}

// take takes n, or returns false if fewer are left.
func (b *budget) take(n int) bool {
	if b.left.Add(-int64(n)) < 0 {
		b.give(n)
		return false
	}
	return true
}

func (b *budget) give(n int) { b.left.Add(int64(n)) }

// A share is the part of a budget that one of its users, such as a door, has. Its maximum is a part of the whole, and the rest of the
// budget is for shares that have no more than few: one share, or several together, cannot keep others from having a few.
type share struct {
	of   *budget
	most int // maximum of the share
	last int // the rest of the budget, for shares with no more than few
	used atomic.Int64
}

// few is how many a share has of a budget, however little is left.
const few = 64

// newShare returns an empty share of a budget that began with total. Its maximum is a quarter of that, or enough if that is more.
func newShare(of *budget, total, enough int) *share {
	return &share{of: of, most: max(total/4, enough, few), last: total / 32}
}

// take takes n, or returns false if the share may not have them.
func (s *share) take(n int) bool {
	used := s.used.Add(int64(n))
	if used > int64(s.most) || !s.of.take(n) {
		s.used.Add(-int64(n))
		return false
	}
	if used > few && s.of.left.Load() < int64(s.last) {
		s.give(n)
		return false
	}
	return true
}

func (s *share) give(n int) {
	s.used.Add(-int64(n))
	s.of.give(n)
}

// A gate bounds how many requests are served at once, of one door and of all doors. Others wait, as far as a second bound allows. A door
// has a few whatever the others have, or those whose hosts answer slowly would keep all others waiting.
type gate struct {
	door, own, all chan struct{}
	waiting        *budget
}

func newGate(all chan struct{}) gate {
	return gate{make(chan struct{}, maxRequests), make(chan struct{}, ownRequests), all, newBudget(maxWaiting)}
}

// enter waits until a request may be served. The caller calls leave when it was. The error says why it may not.
func (g *gate) enter(ctx context.Context) (leave func(), err error) {
	select {
	case g.door <- struct{}{}:
		if leave = g.pass(); leave != nil {
			return leave, nil
		}
		<-g.door
	default:
	}
	if !g.waiting.take(1) {
		return nil, errBusy
	}
	defer g.waiting.give(1)
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	select {
	case g.door <- struct{}{}:
	case <-ctx.Done():
		return nil, errBusy
	}
	select {
	case g.own <- struct{}{}:
		return g.leaver(g.own), nil
	case g.all <- struct{}{}:
		return g.leaver(g.all), nil
	case <-ctx.Done():
		<-g.door
		return nil, errBusy
	}
}

// pass lets a request of the door pass, or returns nil if it has to wait for those of others.
func (g *gate) pass() (leave func()) {
	for _, c := range []chan struct{}{g.own, g.all} {
		select {
		case c <- struct{}{}:
			return g.leaver(c)
		default:
		}
	}
	return nil
}

func (g *gate) leaver(of chan struct{}) func() { return func() { <-of; <-g.door } }

// A meter counts bytes in one direction.
type meter struct {
	total    atomic.Int64
	reported int64 // guarded by record.mu
	limit    atomic.Int64
}

// add counts n bytes, and returns how many of them are within the limit.
func (m *meter) add(n int) int {
	total, limit := m.total.Add(int64(n)), m.limit.Load()
	if limit <= 0 || total <= limit {
		return n
	}
	over := min(int64(n), total-limit)
	m.total.Add(-over)
	return n - int(over)
}

// exhausted reports whether no byte is left.
func (m *meter) exhausted() bool {
	limit := m.limit.Load()
	return limit > 0 && m.total.Load() >= limit
}
