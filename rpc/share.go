package rpc

import "cmp"

func (s *Server) budget() int64 { return cmp.Or(s.Budget, DefaultBudget) }

// reserve takes n bytes of the budget for a principal, or returns false if fewer are left to it.
func (s *Server) reserve(principal string, n int) bool {
	return s.held.Take(principal, int64(n), func(all, own int64) bool {
		free := s.budget() - all
		return free >= 0 && (!s.Shared || own <= free)
	})
}

func (s *Server) release(principal string, n int) { s.held.Return(principal, int64(n)) }
