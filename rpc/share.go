package rpc

import (
	"cmp"
	"sync"
)

// shares counts the bytes of a budget that principals hold. The zero value holds none.
type shares struct {
	mu  sync.Mutex
	sum int64            // guarded by mu
	of  map[string]int64 // guarded by mu, by principal
}

func (s *Server) budget() int64 { return cmp.Or(s.Budget, DefaultBudget) }

// reserve takes n bytes of the budget for a principal, or returns false if fewer are left to it.
func (s *Server) reserve(principal string, n int) bool {
	h, size := &s.held, int64(n)
	h.mu.Lock()
	defer h.mu.Unlock()
	free := s.budget() - h.sum - size
	if free < 0 || s.Shared && h.of[principal]+size > free {
		return false
	}
	if h.of == nil {
		h.of = map[string]int64{}
	}
	h.sum += size
	h.of[principal] += size
	return true
}

func (s *Server) release(principal string, n int) {
	if n == 0 {
		return
	}
	h := &s.held
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sum -= int64(n)
	if h.of[principal] -= int64(n); h.of[principal] == 0 {
		delete(h.of, principal)
	}
}

// total returns the number of bytes in use.
func (h *shares) total() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sum
}
