package host

import "time"

// A Rate is that of a token bucket (Turner, New Directions in Communications, 1986).
type Rate struct {
	Burst     float64 // tokens in a full bucket
	PerSecond float64
}

// Tokens is a token bucket. The zero value is full. It is not safe for concurrent use.
type Tokens struct {
	used float64
	at   time.Time // when used was computed
}

// Take takes a token, and reports whether there was one.
func (t *Tokens) Take(r Rate, now time.Time) bool {
	t.refill(r, now)
	if r.Burst-t.used < 1 {
		return false
	}
	t.used++
	return true
}

// Full reports whether no token is missing.
func (t *Tokens) Full(r Rate, now time.Time) bool {
	t.refill(r, now)
	return t.used == 0
}

func (t *Tokens) refill(r Rate, now time.Time) {
	t.used = max(0, t.used-max(0, now.Sub(t.at).Seconds())*r.PerSecond)
	t.at = now
}
