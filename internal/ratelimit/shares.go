package ratelimit

import "sync"

// Shares count what several hold of one thing, each and together. The zero value counts nothing. It is safe for concurrent use.
type Shares struct {
	mu  sync.Mutex
	all int64            // guarded by mu
	of  map[string]int64 // guarded by mu: of those that hold any
}

// Take counts n more for who, if within accepts what all and who would hold then.
func (s *Shares) Take(who string, n int64, within func(all, own int64) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !within(s.all+n, s.of[who]+n) {
		return false
	}
	s.add(who, n)
	return true
}

// Return counts n fewer for who.
func (s *Shares) Return(who string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(who, -n)
}

// add changes what who holds. The caller holds s.mu.
func (s *Shares) add(who string, n int64) {
	if s.of == nil {
		s.of = map[string]int64{}
	}
	s.all += n
	if s.of[who] += n; s.of[who] == 0 {
		delete(s.of, who)
	}
}

// Held returns what all hold together, and how many hold any.
func (s *Shares) Held() (all int64, holders int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all, len(s.of)
}
