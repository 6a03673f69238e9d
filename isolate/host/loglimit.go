package host

import (
	"time"

	"corral/internal/fault"
	"corral/internal/ratelimit"
)

// Bounds on the lines of the diagnostic log about one user's refused requests and broken connections, which cost the user
// nothing: a service manager drops the lines of a service that writes too many, and so those about other users.
const (
	lineBurst = 128
	lineRate  = 2 // per second
)

var lineLimit = ratelimit.Rate{Burst: lineBurst, PerSecond: lineRate}

// A LogLimit decides which of those lines are written: a token bucket for each user. The zero value is ready to use. It is
// safe for concurrent use.
type LogLimit struct {
	mu    fault.Mutex
	users map[uint32]*ratelimit.Lines // guarded by mu
}

// Allow reports whether a line about a user may be written now, and how many were omitted since the last one that was.
func (l *LogLimit) Allow(uid uint32, now time.Time) (ok bool, omitted int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.users[uid]
	if u == nil {
		l.forgetFull(now)
		u = &ratelimit.Lines{}
		l.users[uid] = u
	}
	return u.Allow(lineLimit, now)
}

// forgetFull removes users with full buckets, so that the number of users is bounded by that of those who were active in the last
// minute. The caller holds mu.
func (l *LogLimit) forgetFull(now time.Time) {
	if l.users == nil {
		l.users = map[uint32]*ratelimit.Lines{}
	}
	for uid, u := range l.users {
		if u.Idle(lineLimit, now) {
			delete(l.users, uid)
		}
	}
}
