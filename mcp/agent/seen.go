package agent

import (
	"crypto/sha256"
	"fmt"
	"sync"

	"corral/job"
)

// An owner is a client session of a principal.
type owner struct{ principal, session string }

// maxSeen is the maximum number of sessions remembered. Some clients have sessions that never end.
const maxSeen = 1024

// A seen remembers which changes the last reply of each session reported, so that the next one reports news only.
type seen struct {
	mu  sync.Mutex
	all map[owner]map[string][sha256.Size]byte // guarded by mu: hash of the changes, by repository
}

// news reports whether c differs from what it was called with before. No changes are no news for a new session.
func (s *seen) news(o owner, repo string, c *job.Changes) bool {
	text := fmt.Appendf(nil, "%d %d\n", c.More, c.Bytes)
	for _, e := range c.Entries {
		text = fmt.Appendf(text, "%q %v %v %d\n", e.Path, e.Kind, e.Type, e.Bytes)
	}
	sum := sha256.Sum256(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil || len(s.all) >= maxSeen {
		s.all = map[owner]map[string][sha256.Size]byte{}
	}
	last, known := s.all[o][repo]
	if s.all[o] == nil {
		s.all[o] = map[string][sha256.Size]byte{}
	}
	s.all[o][repo] = sum
	if !known {
		return len(c.Entries)+c.More > 0
	}
	return last != sum
}

func (s *seen) end(o owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, o)
}
