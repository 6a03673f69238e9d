package config

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
)

// A token is tokenPrefix and 32 random bytes in base64url. Scanners for leaked secrets recognize the prefix.
const (
	tokenPrefix = "corral_"
	maxToken    = 256 // bytes; a longer text is refused before it is hashed
)

// NewToken returns a new token and its SHA-256, which is what the configuration stores. A hash without salt is enough: nobody can
// guess 256 random bits.
func NewToken() (token string, hash [32]byte) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	return token, sha256.Sum256([]byte(token))
}

// Authenticate returns the principal of a token. Its duration depends on the number of principals alone, not on their tokens.
func (ps Principals) Authenticate(token string) (Principal, bool) {
	if len(token) > maxToken {
		return Principal{}, false
	}
	hash := sha256.Sum256([]byte(token))
	at := -1
	for i, p := range ps {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], p.Hash[:]), i, at)
	}
	if at < 0 {
		return Principal{}, false
	}
	return ps[at], true
}
