package cgroup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"corral/internal/fault"
)

// A User is the group above the jails of one user. Its limit bounds the memory of all of them together: of the processes, of cached
// files, and of what ended jobs have left and other processes hold, such as a memory file that a job passed on. The kernel charges
// memory to the group that allocated it and to those above, also when the first has been removed. So the group of a user stays until the
// instance is removed: otherwise a user would be rid of what is charged by waiting until the last jail was dropped. An idle one costs
// a directory for each hierarchy, and some 100 KiB of kernel memory.
type User struct {
	instance *Instance
	name     string
	event    int          // eventfd that the kernel signals when memory runs out for the user, on v1; else -1
	counted  atomic.Int64 // what was read of it
}

// User returns the group of a user, and makes it if it does not exist.
func (i *Instance) User(uid uint32) (*User, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if u := i.users[uid]; u != nil {
		return u, nil
	}
	u := &User{instance: i, name: "user-" + strconv.FormatUint(uint64(uid), 10), event: -1}
	if made, err := u.make(i.userBytes(uid)); err != nil {
		return nil, errors.Join(fmt.Errorf("create cgroup of user %d: %w", uid, err), removePaths(made))
	}
	i.users[uid] = u
	return u, nil
}

// LimitUsers sets the limit in bytes of the memory of each user but root; 0 is no limit. It applies to users that exist, and to those that
// come. If a user's memory exceeds a lower limit and the kernel cannot reclaim enough, v2 kills jobs of that user; v1 leaves the user's
// limit as it was, and the error wraps EBUSY.
func (i *Instance) LimitUsers(bytes int64) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if bytes == i.perUser {
		return nil
	}
	i.perUser = bytes
	var errs []error
	for uid, u := range i.users {
		if err := u.limit(i.userBytes(uid)); err != nil {
			errs = append(errs, fmt.Errorf("limit the memory of user %d: %w", uid, err))
		}
	}
	return errors.Join(errs...)
}

// userBytes returns the limit of a user. The caller holds mu.
func (i *Instance) userBytes(uid uint32) int64 {
	if uid == 0 {
		return 0
	}
	return i.perUser
}

// Jail creates the directories of a jail of the user, as [Instance.Jail] does for one that belongs to nobody.
func (u *User) Jail(name string, owner int) (*Jail, error) { return u.instance.jail(u, name, owner) }

// make returns the directories that it has created, also with an error.
func (u *User) make(bytes int64) (made []string, err error) {
	t := u.instance.tree
	for _, point := range t.points() {
		dir := u.in(point).Path
		if err := os.Mkdir(dir, 0o755); err != nil {
			return made, err
		}
		made = append(made, dir)
	}
	if t.layout == "v2" {
		if err := enableIn(made[0], neededControllers(t.path(t.unified))); err != nil {
			return made, err
		}
	}
	if bytes != 0 { // a new group has no limit
		if err := u.limit(bytes); err != nil {
			return made, err
		}
	}
	if t.layout == "v2" {
		return made, nil
	}
	return made, u.countOOM()
}

// in returns the user's group in the hierarchy mounted at point.
func (u *User) in(point string) group {
	return groupAt(u.instance.tree.path(point, u.instance.tree.top, u.instance.name, u.name))
}

// memory returns the user's group in the hierarchy of the memory controller.
func (u *User) memory() group { return u.in(u.instance.tree.point("memory")) }

// limit sets the limit of the user's memory, with swap; 0 is none.
func (u *User) limit(bytes int64) error {
	i := u.instance
	if i.tree.layout != "v2" {
		return write(v1Memory(bytes, i.has.swap, true), func(string) group { return u.memory() })
	}
	// The group has no memory.oom.group: of all jobs, the kernel kills one, which has it.
	value, swap := strconv.FormatInt(bytes, 10), "0"
	if bytes == 0 {
		value, swap = "max", "max"
	}
	if i.has.swap {
		if err := u.memory().Write("memory.swap.max", swap); err != nil {
			return err
		}
	}
	return u.memory().Write("memory.max", value)
}

// memswPrefix precedes the names of v1's files about memory and swap together.
const memswPrefix = "memory.memsw."

// v1Counter reads a counter of v1's memory controller, -1 if it cannot: of memory and swap together where the kernel has it, because that
// limit is reached first.
func (i *Instance) v1Counter(g group, name string) int64 {
	prefix := "memory."
	if i.has.swap {
		prefix = memswPrefix
	}
	b, err := g.Read(prefix + name)
	if err != nil {
		return -1
	}
	return number(b)
}

// countOOM has the kernel count on v1 how often memory ran out for the user. (Its memory.failcnt is 0 in Linux 6.18.)
func (u *User) countOOM() error {
	control, err := u.memory().Open("memory.oom_control", unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(control)
	u.event, err = openOOMEvent(u.memory(), control)
	return err
}

// ooms returns how often memory ran out for the user: the limit was reached, and nothing could be reclaimed. It is -1 where the kernel does
// not report that (v2 before Linux 5.2).
func (u *User) ooms() int64 {
	if u.event >= 0 {
		var count [8]byte // eventfd(2)
		if _, err := unix.Read(u.event, count[:]); err != nil {
			return u.counted.Load()
		}
		return u.counted.Add(int64(binary.NativeEndian.Uint64(count[:])))
	}
	b, err := u.memory().Read("memory.events.local")
	if err != nil {
		return -1
	}
	return valueOf(b, "oom")
}

// costly is the size in pages of the largest allocation for which the kernel kills (PAGE_ALLOC_COSTLY_ORDER).
const costly = 8

// userLimit returns the limit in bytes of the memory of all jobs of the user, if the kernel killed processes of the job because that was
// reached, and 0 if it was the job's own, which v2 counts in own. v1 has no such count, but a job that ran out of its own memory has
// reached its limit, all but one allocation. So a job that reached both ran out of its own.
func (g *Job) userLimit(own int64) int64 {
	if g.user == nil || g.user.ooms() <= g.ooms || own > 0 {
		return 0
	}
	i, memory := g.instance, g.in("memory")
	if i.tree.layout != "v2" {
		peak, limit := i.v1Counter(memory, "max_usage_in_bytes"), i.v1Counter(memory, "limit_in_bytes")
		if peak >= limit-costly*int64(os.Getpagesize()) {
			return 0
		}
	}
	return fault.Get(&i.mu, func() int64 { return i.perUser })
}
