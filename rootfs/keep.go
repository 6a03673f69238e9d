package rootfs

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// An Etc keeps the copy of a host's /etc from one tree to the next, as long as
// it is unchanged: every directory that was read, and every file in them, is
// looked at again each time, which takes a tenth of reading them. The zero Etc
// has none yet. It is safe for concurrent use.
type Etc struct {
	mu    sync.Mutex
	young time.Duration // in place of coarse, for tests; 0 is coarse
	etcCopy
}

// etcCopy is what was copied of one /etc.
type etcCopy struct {
	host    string // Options.Host
	uid     uint32 // its owner
	seen    []looked
	entries []Entry
	skipped []Skip
}

// looked is a directory, or what is in one, when it was looked at.
type looked struct {
	path string // below /etc; "." is /etc itself
	at   stamp
}

// stamp tells a node from what it was before.
type stamp struct {
	dev, ino     uint64
	mode, uid    uint32
	size         int64
	mtime, ctime unix.Timespec
}

func stampOf(st *unix.Stat_t) stamp {
	return stamp{st.Dev, st.Ino, st.Mode, st.Uid, st.Size, st.Mtim, st.Ctim}
}

// coarse is more than the steps in which clocks of file systems go: a second
// with ext4's small inodes, two with FAT. A node that changed within it may
// change once more and look the same.
const coarse = 2100 * time.Millisecond

// settled reports whether a node's times are old enough to tell a change.
func (s stamp) settled(now time.Time, coarse time.Duration) bool {
	return now.Sub(time.Unix(s.mtime.Unix())) > coarse && now.Sub(time.Unix(s.ctime.Unix())) > coarse
}

// get is the copy that is kept of this host's /etc, open as dir, if nothing in
// it has changed.
func (e *Etc) get(host string, uid uint32, dir int) (etcCopy, bool) {
	if e == nil {
		return etcCopy{}, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.host != host || e.uid != uid || len(e.seen) == 0 {
		return etcCopy{}, false
	}
	// From the top down: the directories above each are those that they were.
	for _, l := range e.seen {
		var st unix.Stat_t
		if unix.Fstatat(dir, l.path, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || stampOf(&st) != l.at {
			return etcCopy{}, false
		}
	}
	return e.etcCopy, true
}

// put keeps a copy, unless something in it is too young.
func (e *Etc) put(c etcCopy, began time.Time) {
	if e == nil || slices.ContainsFunc(c.seen, func(l looked) bool { return !l.at.settled(began, cmp.Or(e.young, coarse)) }) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.etcCopy = c
}

// Beyond is what t has in addition to base, which was written already, and
// whether it has all of base. Content is compared too.
func (t Tree) Beyond(base Tree) (more Tree, ok bool) {
	rest := base.Entries
	for _, e := range t.Entries {
		if len(rest) > 0 && same(e, rest[0]) {
			rest = rest[1:]
			continue
		}
		more.Entries = append(more.Entries, e)
	}
	return more, len(rest) == 0
}

func same(a, b Entry) bool {
	if a.Path != b.Path || a.Mode != b.Mode || a.Link != b.Link || len(a.Data) != len(b.Data) {
		return false
	}
	return len(a.Data) == 0 || &a.Data[0] == &b.Data[0] || string(a.Data) == string(b.Data)
}
