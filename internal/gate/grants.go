package gate

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"
)

// GrantOptions bound links and cookies. All fields but Idle are required.
type GrantOptions struct {
	Link   time.Duration // how long a link can be opened
	Cookie time.Duration // how long a cookie is valid, however much it is used
	Idle   time.Duration // how long a cookie is valid after its last use; 0 does not restrict it
	// Max is the maximum number of links that are not opened, and of cookies, of a principal. A further one replaces the one
	// that expires first.
	Max int
}

// A Holder is on whose behalf somebody logs in: a principal, by one of its tokens.
type Holder struct {
	Principal string
	Token     [32]byte // its SHA-256
}

// A grant lets the one who has its token see one place on behalf of a holder.
type grant[P comparable] struct {
	holder  Holder
	at      P
	peer    Peer // of a cookie: who opened its link
	expires time.Time
	idle    time.Time // when a cookie that is not used expires; zero: never
}

// Grants are links that can be opened, and cookies of those that were. P is the type of the places that they are for. Methods may be
// called by several goroutines at once.
//
// Whoever holds a valid token of a principal asks for a link, and opens it in a browser. The link can be opened once and within a
// short time. Links and cookies say by which token they were made, so that they can end with it: one that was stolen is replaced, and its
// principal stays. Neither it nor the cookie says anything about the principal: both are random, and are kept as hashes, so that a look-up
// tells by its time nothing about another one. Nothing is written to disk: a server that restarts has no links and no cookies.
//
// Browsers send a cookie to every port of its host name, so a page can lead its tab to another user's server, which gets the cookie. It
// is of no use there: a cookie is valid on connections of the user of this machine alone who opened the link.
type Grants[P comparable] struct {
	o GrantOptions

	mu      sync.Mutex
	links   map[[32]byte]*grant[P] // guarded by mu
	cookies map[[32]byte]*grant[P] // guarded by mu
}

// NewGrants returns grants without links.
func NewGrants[P comparable](o GrantOptions) *Grants[P] {
	return &Grants[P]{o: o, links: map[[32]byte]*grant[P]{}, cookies: map[[32]byte]*grant[P]{}}
}

// Link returns the token of a new link.
func (g *Grants[P]) Link(by Holder, at P, now time.Time) (token string, expires time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	expires = now.Add(g.o.Link)
	return g.put(g.links, grant[P]{holder: by, at: at, expires: expires}, now), expires
}

// Open exchanges the token of a link to a place for that of a cookie of the peer's, once. Nobody opens none.
func (g *Grants[P]) Open(token string, at P, peer Peer, now time.Time) (cookie string, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := sha256.Sum256([]byte(token))
	link := g.links[key]
	if link == nil || link.at != at || peer == (Peer{}) { // a link is not used up at a place that it is not for
		return "", false
	}
	delete(g.links, key)
	if !now.Before(link.expires) {
		return "", false
	}
	return g.put(g.cookies, grant[P]{link.holder, at, peer, now.Add(g.o.Cookie), g.idleFrom(now)}, now), true
}

// Use returns on whose behalf the peer who has a cookie sees a place, and that this is a use of the cookie.
func (g *Grants[P]) Use(cookie string, at P, peer Peer, now time.Time) (by Holder, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.valid(cookie, at, peer, now)
	if c == nil {
		return Holder{}, false
	}
	c.idle = g.idleFrom(now)
	return c.holder, true
}

// Owner returns on whose behalf the peer who has a cookie sees a place. It is not a use of the cookie.
func (g *Grants[P]) Owner(cookie string, at P, peer Peer, now time.Time) (by Holder, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.valid(cookie, at, peer, now)
	if c == nil {
		return Holder{}, false
	}
	return c.holder, true
}

// End makes a cookie invalid.
func (g *Grants[P]) End(cookie string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.cookies, sha256.Sum256([]byte(cookie)))
}

// valid returns the grant of a peer's cookie, nil if there is none. The caller holds g.mu.
func (g *Grants[P]) valid(cookie string, at P, peer Peer, now time.Time) *grant[P] {
	c := g.cookies[sha256.Sum256([]byte(cookie))]
	if c == nil || c.at != at || c.peer != peer || c.expired(now) {
		return nil
	}
	return c
}

// idleFrom returns when a cookie expires that was used now for the last time.
func (g *Grants[P]) idleFrom(now time.Time) time.Time {
	if g.o.Idle == 0 {
		return time.Time{}
	}
	return now.Add(g.o.Idle)
}

// expired reports whether a grant is not valid any more.
func (c *grant[P]) expired(now time.Time) bool {
	return !now.Before(c.expires) || !c.idle.IsZero() && !now.Before(c.idle)
}

// put adds a grant and returns its token. It drops those that have expired and, if the principal has too many, the one that
// expires first. The caller holds g.mu.
func (g *Grants[P]) put(all map[[32]byte]*grant[P], one grant[P], now time.Time) (token string) {
	mine, first := 0, [32]byte{}
	for key, other := range all {
		switch {
		case other.expired(now):
			delete(all, key)
		case other.holder.Principal == one.holder.Principal:
			if mine == 0 || other.expires.Before(all[first].expires) {
				first = key
			}
			mine++
		}
	}
	if mine >= g.o.Max {
		delete(all, first)
	}
	b := make([]byte, 32)
	_, _ = rand.Read(b) // crypto/rand.Read never fails
	token = hex.EncodeToString(b)
	all[sha256.Sum256([]byte(token))] = &one
	return token
}
