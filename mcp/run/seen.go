package run

import (
	"crypto/sha256"
	"fmt"
	"sync"

	"corral/job"
	"corral/mcp/tool"
)

// An owner is a client session of a principal.
type owner struct{ principal, session string }

// maxSeen is the maximum number of sessions remembered. Some clients have sessions that never end.
const maxSeen = 1024

// A Seen remembers which changes the last reply of each session reported, so that the next one reports news only.
type Seen struct {
	mu  sync.Mutex
	all map[owner]map[string][sha256.Size]byte // guarded by mu: hash of the changes, by repository
}

// News reports whether changes differ from those of the call before for the same session and repository. No changes are no news for
// a new session, and nil never is.
func (s *Seen) News(c tool.Caller, repo string, changes *job.Changes) bool {
	if changes == nil {
		return false
	}
	o := owner{c.Principal, c.Session}
	text := fmt.Appendf(nil, "%d %d\n", changes.More, changes.Bytes)
	for _, e := range changes.Entries {
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
		return len(changes.Entries)+changes.More > 0
	}
	return last != sum
}

// End forgets a client session.
func (s *Seen) End(principal, session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, owner{principal, session})
}
