package rootfs

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/fault"
)

// An Etc keeps the copy of a host's /etc from one tree to the next while it is unchanged. Each time, it stats every
// directory that was read and every file in them, which takes a tenth of reading them. The zero Etc is empty and
// ready for use. It is safe for concurrent use.
type Etc struct {
	mu      fault.Mutex
	testAge time.Duration // replaces minAge in tests; 0 stands for minAge
	etcCopy
}

// etcCopy is a copy of /etc and the state that it was made from.
type etcCopy struct {
	host    string   // Options.Host
	files   []string // Options.EtcFiles
	uid     uint32   // the host's owner
	seen    []nodeState
	entries []Entry
	skipped []Skip
}

// nodeState is the state of a directory, or of one of its entries, when it was read.
type nodeState struct {
	path string // below /etc; "." is /etc itself
	at   stamp
}

// stamp identifies a version of a node.
type stamp struct {
	dev, ino     uint64
	mode, uid    uint32
	size         int64
	mtime, ctime unix.Timespec
}

func stampOf(st *unix.Stat_t) stamp {
	return stamp{st.Dev, st.Ino, st.Mode, st.Uid, st.Size, st.Mtim, st.Ctim}
}

// minAge is longer than the granularity of file system clocks: a second with ext4's small inodes, two with FAT. A
// node that changed less than minAge ago may change again without a different stamp.
const minAge = 2100 * time.Millisecond

// settled reports whether a node's times are old enough that any further change alters them.
func (s stamp) settled(now time.Time, minAge time.Duration) bool {
	return now.Sub(time.Unix(s.mtime.Unix())) > minAge && now.Sub(time.Unix(s.ctime.Unix())) > minAge
}

// get returns the copy kept of this host's /etc, which is open as dir, if nothing in it has changed. o.Watch notices
// changes from then on.
func (e *Etc) get(o *Options, uid uint32, dir int) (etcCopy, bool) {
	if e == nil {
		return etcCopy{}, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.host != o.Host || !slices.Equal(e.files, o.EtcFiles) || e.uid != uid || len(e.seen) == 0 {
		return etcCopy{}, false
	}
	// From the top down, so the parents of each node are already known to be unchanged.
	for _, l := range e.seen {
		var st unix.Stat_t
		if l.at.mode&unix.S_IFMT == unix.S_IFDIR {
			o.Watch.add(dir, l.path)
		}
		if unix.Fstatat(dir, l.path, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || stampOf(&st) != l.at {
			return etcCopy{}, false
		}
	}
	return e.etcCopy, true
}

// put keeps a copy, unless a node in it changed too recently before began.
func (e *Etc) put(c etcCopy, began time.Time) {
	if e == nil || slices.ContainsFunc(c.seen, func(l nodeState) bool { return !l.at.settled(began, cmp.Or(e.testAge, minAge)) }) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.etcCopy = c
}

// Beyond returns the entries that t has in addition to base, which is already written, and whether t contains all of
// base. Contents are compared too.
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
