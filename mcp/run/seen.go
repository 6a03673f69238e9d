package run

import (
	"crypto/sha256"
	"fmt"
	"sync"

	"corral/job"
	"corral/mcp/tool"
)

// maxSeen is the maximum number of sessions remembered. Some clients have sessions that never end.
const maxSeen = 1024

// A Seen remembers which changes the last reply of each session reported, so that the next one reports news only.
type Seen struct {
	mu  sync.Mutex
	all map[Owner]map[string][sha256.Size]byte // guarded by mu: hash of the changes, by repository
}

// News reports whether changes differ from those of the call before for the same session and repository. No changes are no news for
// a new session, and nil never is.
func (s *Seen) News(c tool.Caller, repo string, changes *job.Changes) bool {
	if changes == nil {
		return false
	}
	text := fmt.Appendf(nil, "%d %d\n", changes.More, changes.Bytes)
	for _, e := range changes.Entries {
		text = fmt.Appendf(text, "%q %v %v %d\n", e.Path, e.Kind, e.Type, e.Bytes)
	}
	last, known := s.replace(c, repo, text)
	if !known {
		return len(changes.Entries)+changes.More > 0
	}
	return last != sha256.Sum256(text)
}

// IsNews reports whether a text about some subject differs from that of the call before for the same session and repository. Having
// nothing to say is no news.
func (s *Seen) IsNews(c tool.Caller, repo, subject, text string) bool {
	last, _ := s.replace(c, repo+"\x00"+subject, []byte(text))
	return text != "" && last != sha256.Sum256([]byte(text))
}

// replace records the hash of what a reply said, and returns the one before.
func (s *Seen) replace(c tool.Caller, of string, text []byte) (last [sha256.Size]byte, known bool) {
	o := OwnerOf(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil || len(s.all) >= maxSeen {
		s.all = map[Owner]map[string][sha256.Size]byte{}
	}
	last, known = s.all[o][of]
	if s.all[o] == nil {
		s.all[o] = map[string][sha256.Size]byte{}
	}
	s.all[o][of] = sha256.Sum256(text)
	return last, known
}

// End forgets a client session.
func (s *Seen) End(principal, session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, Owner{principal, session})
}
