package config

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"time"
)

// A token is tokenPrefix and 32 random bytes in base64url. Scanners for leaked secrets recognize the prefix.
const (
	tokenPrefix = "corral_"
	maxToken    = 256 // bytes; a longer text is refused before it is hashed
)

// NewToken returns a new token and its SHA-256, which is what the configuration stores. A fast hash without salt is enough:
// slow hashes protect passwords, which can be guessed, and nobody can guess 256 random bits. Each request is authenticated,
// so a slow hash would only cost time, and be a way to waste the server's.
func NewToken() (token string, hash [32]byte) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	return token, sha256.Sum256([]byte(token))
}

// Authenticate returns the principal of a token that is valid now. Its duration depends on the number of principals alone,
// not on their tokens.
func (ps Principals) Authenticate(token string, now time.Time) (Principal, bool) {
	if len(token) > maxToken {
		return Principal{}, false
	}
	return ps.ByHash(sha256.Sum256([]byte(token)), now)
}

// ByHash is Authenticate for the SHA-256 of a token.
func (ps Principals) ByHash(hash [32]byte, now time.Time) (Principal, bool) {
	at := -1
	for i, p := range ps {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], p.Hash[:]), 2*i, at)
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], p.Previous[:]), 2*i+1, at)
	}
	if at < 0 {
		return Principal{}, false
	}
	p := ps[at/2]
	valid := p.Expires == 0 || At(now) < p.Expires
	if at%2 == 1 { // a previous token always expires
		valid = At(now) < p.PreviousExpires
	}
	if !valid {
		return Principal{}, false
	}
	return p, true
}

// MaxTokenLife is the longest time after which a token can expire, and the longest grace of a rotation.
const MaxTokenLife = 10 * 365 * 24 * time.Hour

// A Rotation replaces the token of a principal.
type Rotation struct {
	Name  string
	Hash  [32]byte      // of the new token
	Now   Instant       // when it was made
	Grace time.Duration // how long the former token is still accepted; 0 is not at all
	Life  time.Duration // how long the new token is accepted; 0 is as long as the former one was
}

// of returns the principal with its new token. A token before the former one is not accepted any more.
func (r *Rotation) of(p Principal) (Principal, error) {
	life := r.Life
	if life == 0 && p.Expires != 0 {
		if p.Created == 0 || p.Created >= p.Expires {
			return p, fmt.Errorf("the token of %q expires, and its entry does not say when it was created\nhint: --expires says when the new one is to expire", p.Name)
		}
		life = time.Duration(p.Expires-p.Created) * time.Second
	}
	former, formerExpires := p.Hash, r.Now+Instant(r.Grace/time.Second)
	if p.Expires != 0 {
		formerExpires = min(formerExpires, p.Expires)
	}
	p.Previous, p.PreviousExpires = former, formerExpires
	if formerExpires <= r.Now {
		p.Previous, p.PreviousExpires = [32]byte{}, 0
	}
	p.Hash, p.Created, p.Expires = r.Hash, r.Now, 0
	if life != 0 {
		p.Expires = r.Now + Instant(life/time.Second)
	}
	return p, nil
}
