package artifact

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// owners caches the principals of a store's artifacts, which are in their manifests and never change.
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

// only removes all entries but those of list.
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

// owner returns the principal of an artifact. All artifacts with unreadable manifests count as one unnamed owner's.
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

// errShare is returned for an artifact that could only be stored by evicting what other principals may keep.
var errShare = errors.New("it is larger than the share of the quota that one user or token can use beside the others")

// evictions returns the artifacts to evict so that principal can store more; list is all artifacts, oldest first. It
// frees a sixteenth of the quota beyond that, so that few commits have to evict.
//
// Each principal with artifacts may keep an equal share of the quota, less a sixteenth. The oldest artifacts of the
// principal with the largest usage above its share are evicted first. It returns errShare if that is not enough.
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

// shareOf returns how much of a quota each of n principals may keep, whatever the others store.
func shareOf(quota int64, n int) int64 {
	share := quota / int64(max(1, n))
	return max(1, share-(share+15)/16)
}

// largest returns the principal with the largest usage by size that is above share and has artifacts to evict. Of
// several it is the one with the oldest artifact.
func largest(used map[string]usage, queues map[string][]stored, size func(usage) int64, share int64) (principal string, found bool) {
	maxSize := share
	for who, queue := range queues {
		u := size(used[who])
		if len(queue) == 0 || u <= share || u < maxSize {
			continue
		}
		if u == maxSize && found && !before(queue[0], queues[principal][0]) {
			continue
		}
		principal, maxSize, found = who, u, true
	}
	return principal, found
}
