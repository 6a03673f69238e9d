package ctxtools

import (
	"sync"

	"corral/mcp/run"
)

// sessionSums counts the bytes that a session's calls produced and returned.
type sessionSums struct {
	Calls    int   `json:"calls"`
	Output   int64 `json:"outputBytes"`   // what jobs wrote, and what was indexed for the caller
	Returned int64 `json:"returnedBytes"` // what replies contained
	KeptOut  int64 `json:"keptOutBytes"`  // the difference
}

// maxSums is the maximum number of sessions counted. Some clients have sessions that never end.
const maxSums = 1024

// sums holds the counts by session.
type sums struct {
	mu  sync.Mutex
	all map[run.Owner]*sessionSums // guarded by mu
}

func (s *sums) add(who run.Owner, calls int, output, returned int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.all[who]
	if one == nil {
		if s.all == nil || len(s.all) >= maxSums {
			s.all = map[run.Owner]*sessionSums{} // statistics only: losing them breaks nothing
		}
		one = &sessionSums{}
		s.all[who] = one
	}
	one.Calls += calls
	one.Output += output
	one.Returned += returned
	one.KeptOut = max(one.Output-one.Returned, 0)
}

func (s *sums) of(who run.Owner) sessionSums {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.all[who]; one != nil {
		return *one
	}
	return sessionSums{}
}

func (s *sums) end(who run.Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, who)
}
