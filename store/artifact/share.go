package artifact

import (
	"errors"
)

// ErrShare is returned for an artifact that could only be stored by evicting what other principals may keep.
var ErrShare = errors.New("it is larger than the share of the quota that one user or token can use beside the others")

// evictions returns the artifacts to evict so that principal can store more within limit; list is all artifacts, oldest
// first. It frees a sixteenth of the quota beyond that, so that few commits have to evict.
//
// Each principal with artifacts may keep an equal share of the quota, less a sixteenth. The oldest artifacts of the
// principal with the largest usage above its share are evicted first. It returns ErrShare if that is not enough.
func evictions(limit usage, list []entry, principal string, more usage) ([]entry, error) {
	used, queues, sum := map[string]usage{}, map[string][]entry{}, more
	if more != (usage{}) {
		used[principal] = more
	}
	for _, a := range list {
		u := used[a.Owner]
		used[a.Owner] = usage{u.count + 1, u.bytes + a.Bytes}
		queues[a.Owner] = append(queues[a.Owner], a)
		sum.count, sum.bytes = sum.count+1, sum.bytes+a.Bytes
	}
	target := usage{limit.count - limit.count/16, limit.bytes - limit.bytes/16}
	share := usage{shareOf(limit.count, len(used)), shareOf(limit.bytes, len(used))}
	count, bytes := func(u usage) int64 { return u.count }, func(u usage) int64 { return u.bytes }
	var victims []entry
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
		used[from] = usage{u.count - 1, u.bytes - a.Bytes}
		sum.count, sum.bytes = sum.count-1, sum.bytes-a.Bytes
		victims = append(victims, a)
	}
	if sum.count > limit.count || sum.bytes > limit.bytes {
		return nil, ErrShare
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
func largest(used map[string]usage, queues map[string][]entry, size func(usage) int64, share int64) (principal string, found bool) {
	maxSize := share
	for who, queue := range queues {
		u := size(used[who])
		if len(queue) == 0 || u <= share || u < maxSize {
			continue
		}
		if u == maxSize && found && byAge(queue[0], queues[principal][0]) >= 0 {
			continue
		}
		principal, maxSize, found = who, u, true
	}
	return principal, found
}
