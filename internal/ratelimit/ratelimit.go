// Package ratelimit bounds how often something happens.
package ratelimit

import "time"

// A Rate is that of a token bucket (Turner, New Directions in Communications, 1986).
type Rate struct {
	Burst     float64 // tokens in a full bucket
	PerSecond float64
}

// A Bucket is a token bucket. The zero value is full. It is not safe for concurrent use.
type Bucket struct {
	used float64
	at   time.Time // when used was computed
}

// Take takes a token, and reports whether there was one.
func (b *Bucket) Take(r Rate, now time.Time) bool {
	if b.Left(r, now) < 1 {
		return false
	}
	b.used++
	return true
}

// Spend takes a number of tokens. If there are not as many, later ones are taken in advance.
func (b *Bucket) Spend(r Rate, now time.Time, tokens float64) {
	b.refill(r, now)
	b.used += tokens
}

// Left returns the number of tokens. It is below zero if tokens were taken in advance.
func (b *Bucket) Left(r Rate, now time.Time) float64 {
	b.refill(r, now)
	return r.Burst - b.used
}

// Full reports whether no token is missing.
func (b *Bucket) Full(r Rate, now time.Time) bool {
	b.refill(r, now)
	return b.used == 0
}

func (b *Bucket) refill(r Rate, now time.Time) {
	b.used = max(0, b.used-max(0, now.Sub(b.at).Seconds())*r.PerSecond)
	b.at = now
}
