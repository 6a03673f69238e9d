package scan

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"time"

	"golang.org/x/sys/unix"
)

const noDebt = math.MaxInt64

// rounds are the depths to which the directories not yet read are read, one after the other: a flood of directories deep down
// must not use up the bounds before what lies near the root was looked at. Sensitive directories are read to the bottom.
var rounds = [...]int{3, 8, MaxDepth}

// A node is a remembered directory.
type node struct {
	name         string
	zone         *zone
	id           ident
	mtime, ctime int64 // as they were before it was read
	wd           int32 // of the watch; 0: none
	dirs         []*node
	files        []file // the sensitive entries that are not directories
	row          int16
	track        bool // the directory is itself sensitive
	listed       bool // walked before others, and in spite of MaxDirs
	implied      bool // came with a git directory or a sensitive one, which is reported anyway
	bare         bool // it looked like a bare repository
	unread       bool // not read yet, or not in its present zone
	pending      bool // something below it is unread
	racy         bool // read it again whatever its times say
	fresh        bool // came into its place after since, so that all below it counts as made
	opened       bool // its permissions were changed during this pass
	access       access
}

// A file is the remembered state of a sensitive entry that is not a directory.
type file struct {
	name     string
	row      int16
	presence bool
	content  content
	wd       int32 // of the watch; 0: none
	st       state
	hidden   hidden // of a content
}

// state is what shows that a file was changed. What ctime does not show needs no field, but the others cost
// nothing and hold where times are coarse.
type state struct {
	id      ident
	mode    uint32
	size    int64
	ctime   int64
	to      ident // what a link leads to
	toCtime int64
}

// A walk is one pass over the tree.
type walk struct {
	s        *Scanner
	since    int64 // nanoseconds; changes from then on are the job's
	deadline time.Time
	all      bool // since is void
	quiet    bool // report nothing
	fill     bool // the known tree was compared; now unread directories are read
	level    int  // down to this depth
	full     bool // MaxEntries was reached: directories stay unread
	late     bool // Time was reached: the pass ends
	crowded  bool // a bound other than these left something out
	owes     bool // the tree changed during the pass
	gaps     bool // something is not watched
	reread   bool // read every content again: not every event since it was read is known
	opened   bool // permissions of a directory were changed
	links    int  // followed, see watchLink
	tick     int
	path     []byte // of the directory at hand, with a slash at its end
	ents     []entry
	found    []finding
	names    map[string]bool // of found
	count    int             // paths reported, those not kept included
	rep      Report
}

func (s *Scanner) newWalk(now, since time.Time) *walk {
	w := &walk{s: s, deadline: now.Add(s.bounds.Time)}
	w.since = math.MinInt64
	// UnixNano is undefined outside 1678..2262; the zero time means everything.
	if since.Unix() > 0 {
		w.since = since.Add(-granularity).UnixNano()
	}
	w.since = min(w.since, s.owed)
	return w
}

// run compares the known tree and then reads what is new in it.
func (w *walk) run() (Report, error) {
	s := w.s
	w.reread = !s.events.on() || !s.watched || s.events.lost
	s.watched = false
	if err := w.enterRoot(); err != nil {
		return w.rep, err
	}
	w.fill = true
	for _, level := range rounds {
		if !s.root.pending && !s.root.unread {
			break
		}
		w.level = level
		if err := w.enterRoot(); err != nil {
			return w.rep, err
		}
	}
	if w.opened {
		w.openings(s.root)
	}
	s.owed = noDebt
	if w.full || w.late || w.owes {
		s.owed = w.since
	}
	s.last = time.Now()
	w.crowded = w.crowded || s.tracked >= maxTracked
	if w.full || w.late || s.root.pending || w.crowded {
		w.rep.Incomplete = true
	}
	s.watched = !w.gaps && !w.rep.Incomplete && s.owed == noDebt && !s.root.unread
	w.choose()
	return w.rep, nil
}

func (w *walk) enterRoot() error {
	n := w.s.root
	st, err := fstat(w.s.fd)
	if err != nil {
		return fmt.Errorf("scan: stat of the root: %w", err)
	}
	if !w.fill {
		w.rep.Dirs++
	}
	if !n.stale(&st) && !w.unwatched(n) {
		if !w.fill {
			w.files(n, w.s.fd)
		}
		w.visit(n, w.s.fd, 0)
		return nil
	}
	fd, err := openAt(w.s.fd, ".", unix.O_RDONLY)
	if err != nil {
		return fmt.Errorf("scan: open the root: %w", err)
	}
	defer unix.Close(fd)
	w.read(n, fd)
	w.visit(n, fd, 0)
	return nil
}

func (n *node) stale(st *stat) bool {
	return n.unread || n.racy || n.ctime != st.ctime || n.mtime != st.mtime
}

// visit enters the directories below n that this phase is about.
func (w *walk) visit(n *node, fd, depth int) {
	pending := false
	for _, c := range n.dirs {
		// What is known is compared even if no more entries may be read.
		if w.overdue() || w.fill && w.full {
			n.pending = true
			return
		}
		if w.due(c, depth+1) {
			end := len(w.path)
			w.path = append(append(w.path, c.name...), '/')
			w.enter(n, c, fd, depth+1)
			w.path = w.path[:end]
		}
		pending = pending || c.unread || c.pending
	}
	n.pending = pending
}

func (w *walk) due(c *node, depth int) bool {
	switch {
	case !w.fill:
		return !c.unread
	case c.unread:
		return depth <= w.level || !c.zone.tree || c.listed
	default:
		return c.pending
	}
}

// enter looks at the directory c below n, open as fd.
func (w *walk) enter(n, c *node, fd, depth int) {
	access, changed := uint64(unix.O_RDONLY), c.fresh
	if !c.unread {
		st, err := lstat(fd, c.name)
		if err != nil || st.id != c.id || !st.is(unix.S_IFDIR) {
			w.lost(n, err)
			return
		}
		changed = changed || w.after(st.ctime)
		if !w.fill {
			w.rep.Dirs++
		}
		if !c.stale(&st) && !w.unwatched(c) {
			access = unix.O_PATH
		}
	}
	if access == unix.O_PATH && len(c.dirs) == 0 && len(c.files) == 0 {
		return
	}
	if depth > MaxDepth {
		w.rep.Incomplete = true
		return
	}
	sub, err := openAt(fd, c.name, access)
	if err != nil {
		w.unopened(n, c, changed, err)
		return
	}
	defer unix.Close(sub)
	w.inside(c, sub, access == unix.O_RDONLY, depth)
}

// inside looks at the directory c, open as fd: it reads it or, if its times are the same, compares its files; then what is below.
func (w *walk) inside(c *node, fd int, read bool, depth int) {
	fresh, before := c.fresh, w.count
	switch {
	case read:
		if c.unread {
			w.rep.Dirs++
		}
		w.read(c, fd)
	case !w.fill:
		w.files(c, fd)
	}
	w.visit(c, fd, depth)
	if fresh && c.track && !c.implied && w.count == before {
		w.reportDir(c)
	}
}

// lost notes that an entry of n could not be looked at. Unless that is a matter of permission, it is not the entry that was
// read: the job is still at work, and what it does now must show in the next pass.
func (w *walk) lost(n *node, err error) {
	n.racy = true
	w.rep.Incomplete = true
	if !errors.Is(err, fs.ErrPermission) {
		w.owes = true
	}
}

// unopened deals with a directory that cannot be opened. A mount point is not part of the tree. One that is gone, or is no
// directory any more, was swapped. Any other, mode 000 say, is itself reported if it is sensitive and changed.
func (w *walk) unopened(n, c *node, changed bool, err error) {
	w.gaps = true
	switch {
	case errors.Is(err, unix.EXDEV):
		c.unread, c.pending, c.racy = false, false, false
		return
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EAGAIN):
		w.lost(n, err)
		return
	}
	w.rep.Incomplete = true
	if c.track && changed {
		w.reportDir(c)
	}
	c.racy, c.fresh = true, false
}

// files compares the sensitive files of a directory whose entries are the same as before.
func (w *walk) files(n *node, fd int) {
	for i := range n.files {
		f := &n.files[i]
		st, err := lstat(fd, f.name)
		if err != nil {
			w.lost(n, err)
			continue
		}
		w.rep.Entries++
		if !f.presence {
			f.wd = w.watchFile(fd, f, &st)
		}
		now := w.stateOf(f.name, &st, f.presence)
		if w.changed(f, now, &st, fd) {
			w.report(f.name, f.row)
		}
		f.st = now
	}
}

// stateOf makes a file's state from its metadata, and its target's if it is a link.
func (w *walk) stateOf(name string, st *stat, presence bool) state {
	if presence {
		return state{mode: st.mode & unix.S_IFMT}
	}
	now := state{id: st.id, mode: st.mode, size: st.size, ctime: st.ctime}
	if st.is(unix.S_IFLNK) {
		w.watchLink(string(w.path) + name)
		now.to, now.toCtime = target(w.s.fd, string(w.path)+name)
	}
	return now
}

// differs says whether a remembered file was changed since. That a link leads to another file counts whenever
// that file was made: it may have been moved there.
func (w *walk) differs(f *file, now state, st *stat) bool {
	if f.st == now {
		t := max(now.ctime, now.toCtime)
		return !f.presence && (!w.s.exact || coarse(t)) && w.after(t)
	}
	return w.after(max(st.ctime, now.toCtime)) || f.st.to != now.to
}

// changed is differs for a file that may have a content: that of one which may be another is read, and counts if it hides more from
// git than before.
//
// A store into mapped memory changes the time of a page's first one only, of tmpfs's pages not even that. So a content that
// became another by itself counts, and one that is still open for writing counts whatever its time.
func (w *walk) changed(f *file, now state, st *stat, dir int) bool {
	differs := w.differs(f, now, st)
	if f.content == noContent || w.s.lists {
		return differs && f.content == noContent
	}
	same, before := f.st == now, f.hidden
	read, written := w.hides(dir, f, st, differs || !same)
	if !read || f.hidden.within(&before) {
		return false
	}
	return differs || written || same && before.known
}

func (w *walk) after(ctime int64) bool { return w.all || latest(ctime) >= w.since }

// overdue says whether the time of this pass is up. The clock is looked at now and then.
func (w *walk) overdue() bool {
	w.tick++
	if !w.late && w.tick%256 == 0 {
		w.late = time.Now().After(w.deadline)
	}
	return w.late
}

// quota is how many entries the directory at hand may use up: of what is left half, as long as that is much, so that one flooded
// directory leaves something for the others.
func (w *walk) quota() int {
	left := w.s.bounds.MaxEntries - w.rep.Entries
	if left > 4096 {
		left /= 2
	}
	return left
}
