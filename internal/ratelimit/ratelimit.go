// Package ratelimit bounds how often something happens, and how much of something each of several holds.
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

// Lines decides which lines of a log are written. The zero value is ready to use. It is not safe for concurrent use.
type Lines struct {
	bucket  Bucket
	omitted int // since the last line that was written
}

// Allow reports whether a line may be written now, and how many were omitted since the last one that was.
func (l *Lines) Allow(r Rate, now time.Time) (ok bool, omitted int) {
	if !l.bucket.Take(r, now) {
		l.omitted++
		return false, 0
	}
	omitted, l.omitted = l.omitted, 0
	return true, omitted
}

// Omitted returns how many lines were omitted since the last one that was written, and forgets them.
func (l *Lines) Omitted() (n int) {
	n, l.omitted = l.omitted, 0
	return n
}

// Idle reports whether a new Lines would decide the same.
func (l *Lines) Idle(r Rate, now time.Time) bool { return l.omitted == 0 && l.bucket.Full(r, now) }
