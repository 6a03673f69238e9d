package artifact

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// owners remembers whose the artifacts of a store are, which a manifest says and which never changes.
type owners struct {
	mu        sync.Mutex
	principal map[string]string // guarded by mu, by handle
}

func (o *owners) set(handle, principal string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.principal == nil {
		o.principal = map[string]string{}
	}
	o.principal[handle] = principal
}

func (o *owners) of(handle string) (principal string, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	principal, known = o.principal[handle]
	return principal, known
}

// only forgets all but those of list.
func (o *owners) only(list []stored) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.principal) <= len(list) {
		return
	}
	kept := make(map[string]string, len(list))
	for _, a := range list {
		if principal, known := o.principal[a.handle]; known {
			kept[a.handle] = principal
		}
	}
	o.principal = kept
}

// owner returns whose an artifact is. Artifacts whose manifests cannot be read are one unnamed owner's.
func (s *Store) owner(handle string) string {
	if principal, known := s.owners.of(handle); known {
		return principal
	}
	m, dir, err := s.manifest(handle)
	if err != nil {
		return ""
	}
	unix.Close(dir)
	s.owners.set(handle, m.Principal)
	return m.Principal
}

// errShare is an artifact that could be stored only in place of what others may keep.
var errShare = errors.New("it is larger than what may be stored of one user or token beside the others")

// evictions returns the artifacts that are to be removed so that principal can store more: list is all of them, the oldest
// first. It makes room for a sixteenth of the quota beyond that, so that few commits have to.
//
// Each principal that has artifacts may keep an equal share of the quota, less a sixteenth: they are taken, the oldest
// first, from whoever has most and more than that. It is errShare if there is no room then.
func (s *Store) evictions(list []stored, principal string, more usage) ([]stored, error) {
	used, queues, sum := map[string]usage{}, map[string][]stored{}, more
	if more != (usage{}) {
		used[principal] = more
	}
	for _, a := range list {
		u := used[a.owner]
		used[a.owner] = usage{u.count + 1, u.bytes + a.bytes}
		queues[a.owner] = append(queues[a.owner], a)
		sum.count, sum.bytes = sum.count+1, sum.bytes+a.bytes
	}
	target := usage{s.maxCount - s.maxCount/16, s.maxBytes - s.maxBytes/16}
	share := usage{shareOf(s.maxCount, len(used)), shareOf(s.maxBytes, len(used))}
	count, bytes := func(u usage) int64 { return u.count }, func(u usage) int64 { return u.bytes }
	var victims []stored
	for {
		from, found := "", false
		if sum.bytes > target.bytes {
			from, found = largest(used, queues, bytes, share.bytes)
		}
		if !found && sum.count > target.count {
			from, found = largest(used, queues, count, share.count)
		}
		if !found {
			break
		}
		a := queues[from][0]
		queues[from] = queues[from][1:]
		u := used[from]
		used[from] = usage{u.count - 1, u.bytes - a.bytes}
		sum.count, sum.bytes = sum.count-1, sum.bytes-a.bytes
		victims = append(victims, a)
	}
	if sum.count > s.maxCount || sum.bytes > s.maxBytes {
		return nil, errShare
	}
	return victims, nil
}

// shareOf is what each of n principals may keep of a quota, whatever the others store.
func shareOf(quota int64, n int) int64 {
	share := quota / int64(max(1, n))
	return max(1, share-(share+15)/16)
}

// largest returns the principal that uses most of what size says, and more than share, and has artifacts to remove. Of
// several it is the one whose oldest artifact is older.
func largest(used map[string]usage, queues map[string][]stored, size func(usage) int64, share int64) (principal string, found bool) {
	most := share
	for who, queue := range queues {
		u := size(used[who])
		if len(queue) == 0 || u <= share || u < most {
			continue
		}
		if u == most && found && !before(queue[0], queues[principal][0]) {
			continue
		}
		principal, most, found = who, u, true
	}
	return principal, found
}
