package cell

import (
	"fmt"
	"os"
	"slices"

	"corral/internal/fault"
	"corral/isolate/host"
)

// maxIDMaps is the number of id maps above which a jail closes the map of a returned user. Users are reused last in,
// first out.
const maxIDMaps = 16

// jobUsers are the users of a jail's jobs, by number, with the id map from the repository's owner to each.
type jobUsers struct {
	newMap func(n uint32) (*os.File, error)
	shared bool // all jobs have the user with number 0, as in a session

	mu   fault.Mutex
	free []uint32            // guarded by mu: numbers of users that no slot has
	maps map[uint32]*os.File // guarded by mu: by user number
}

// newJobUsers returns users whose id maps are made by newMap. The caller must call close.
func newJobUsers(shared bool, newMap func(n uint32) (*os.File, error)) *jobUsers {
	u := &jobUsers{newMap: newMap, shared: shared, maps: map[uint32]*os.File{}}
	for n := uint32(host.JobUIDs); n > 0; n-- {
		u.free = append(u.free, n-1)
	}
	if shared {
		u.free = u.free[:host.JobUIDs-1] // number 0 is never free
	}
	return u
}

// take returns the number of a user that no other slot has. With own unset, it may be the user that all jobs share.
func (u *jobUsers) take(own bool) (uint32, error) {
	if u.shared && !own {
		return 0, nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.free) == 0 {
		return 0, fmt.Errorf("all %d job users of this jail are in use", host.JobUIDs)
	}
	n := u.free[len(u.free)-1]
	u.free = u.free[:len(u.free)-1]
	return n, nil
}

// giveBack returns the user with number n. One whose slot did not become ready is taken again after all others: the kernel may refuse it
// something, such as a key, for as long as others hold it.
func (u *jobUsers) giveBack(n uint32, ready bool) {
	if u.shared && n == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if ready {
		u.free = append(u.free, n)
	} else {
		u.free = slices.Insert(u.free, 0, n)
	}
	if m := u.maps[n]; m != nil && len(u.maps) > maxIDMaps {
		m.Close()
		delete(u.maps, n)
	}
}

// idmap returns the id map from the repository's owner to the user with number n. It is valid until n is returned;
// it stays cached while there are few.
func (u *jobUsers) idmap(n uint32) (*os.File, error) {
	if m := fault.Get(&u.mu, func() *os.File { return u.maps[n] }); m != nil {
		return m, nil
	}
	m, err := u.newMap(n)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.maps[n] = m // a number has one slot at a time, so no other goroutine has made it in the meantime
	return m, nil
}

// prepare makes the id maps of the count users that are taken next.
func (u *jobUsers) prepare(count uint32) error {
	for n := range count {
		if _, err := u.idmap(n); err != nil {
			return err
		}
	}
	return nil
}

// close closes all id maps.
func (u *jobUsers) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, m := range u.maps {
		m.Close()
	}
	u.maps = nil
}
