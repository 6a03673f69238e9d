package preview

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"
)

const (
	// linkTime is how long a link can be opened.
	linkTime = 5 * time.Minute
	// grantTime is how long a browser that has opened a link sees the preview.
	grantTime = 12 * time.Hour
	// maxGrants is the maximum number of links that are not opened, and of browsers that have opened one, of a principal. A
	// further one replaces the oldest.
	maxGrants = 64
)

// A grant lets the one who has its token see one place on behalf of a principal.
type grant struct {
	principal string
	at        place
	expires   time.Time
}

// grants are links that can be opened, and cookies of those that were. Tokens are kept as hashes: a look-up tells by its time
// nothing about another one. The zero value is ready to use.
type grants struct {
	mu      sync.Mutex
	links   map[[32]byte]grant // guarded by mu
	cookies map[[32]byte]grant // guarded by mu
}

// link returns the token of a new link.
func (g *grants) link(principal string, at place, now time.Time) (token string, expires time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	expires = now.Add(linkTime)
	return put(&g.links, grant{principal, at, expires}, now), expires
}

// open exchanges the token of a link to a place for that of a cookie, once.
func (g *grants) open(token string, at place, now time.Time) (cookie string, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := sha256.Sum256([]byte(token))
	link, ok := g.links[key]
	if !ok || link.at != at { // a link is not used up at a host that it is not for
		return "", false
	}
	delete(g.links, key)
	if !now.Before(link.expires) {
		return "", false
	}
	return put(&g.cookies, grant{link.principal, at, now.Add(grantTime)}, now), true
}

// seen returns the principal on whose behalf the holder of a cookie sees a place.
func (g *grants) seen(cookie string, at place, now time.Time) (principal string, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, ok := g.cookies[sha256.Sum256([]byte(cookie))]
	return c.principal, ok && c.at == at && now.Before(c.expires)
}

// put adds a grant and returns its token. It drops those that have expired and, if the principal has too many, the one that
// expires first.
func put(all *map[[32]byte]grant, one grant, now time.Time) (token string) {
	if *all == nil {
		*all = map[[32]byte]grant{}
	}
	mine, first := 0, [32]byte{}
	for key, other := range *all {
		switch {
		case !now.Before(other.expires):
			delete(*all, key)
		case other.principal == one.principal:
			if mine == 0 || other.expires.Before((*all)[first].expires) {
				first = key
			}
			mine++
		}
	}
	if mine >= maxGrants {
		delete(*all, first)
	}
	b := make([]byte, 32)
	_, _ = rand.Read(b) // crypto/rand.Read never fails
	token = hex.EncodeToString(b)
	(*all)[sha256.Sum256([]byte(token))] = one
	return token
}
