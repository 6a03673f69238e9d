package scan

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const nonePending = math.MaxInt64

// rounds are the depths to which unread directories are read, one after the other: many deep directories must not use up
// the bounds before those near the root have been examined. Sensitive directories are read to the bottom at once.
var rounds = [...]int{3, 8, MaxDepth}

// A node is a remembered directory.
type node struct {
	name         string
	zone         *zone
	id           ident
	mtime, ctime int64 // from before it was read
	wd           int32 // inotify watch; 0: none
	dirs         []*node
	files        []file // the sensitive entries that are not directories
	row          int16
	track        bool // the directory is itself sensitive
	listed       bool // walked before others, and even beyond MaxDirs
	implied      bool // part of a new git directory or sensitive directory, which is reported anyway
	bare         bool // it is a look-alike of a bare repository
	unread       bool // not read yet, or not with its current zone
	pending      bool // something below it is unread
	racy         bool // read it again whatever its times
	fresh        bool // it was created or moved here after since, so everything below it counts as new
	opened       bool // its permissions were changed during this pass
	access       access
}

// A file is the remembered state of a sensitive entry that is not a directory.
type file struct {
	name     string
	row      int16
	presence bool
	wd       int32 // inotify watch; 0: none
	st       state
	link     *link   // of a link
	config   *config // of a git configuration
}

// state is compared to detect a change of a file. Every change shows in ctime; the other fields cost nothing and help
// where times are coarse.
type state struct {
	id    ident
	mode  uint32
	size  int64
	ctime int64
	to    target // of a link
}

// A walk is one pass over the tree.
type walk struct {
	s        *Scanner
	since    int64 // nanoseconds; changes from then on are the job's
	deadline time.Time
	all      bool // ignore since
	silent   bool // report nothing
	fill     bool // the known tree was compared; now unread directories are read
	level    int  // fill: read directories down to this depth
	full     bool // MaxEntries was reached: directories stay unread
	late     bool // Time was reached: the pass ends
	crowded  bool // another bound left something out
	changing bool // the tree changed during the pass
	gaps     bool // something is not watched
	opened   bool // permissions of a directory were changed
	links    int  // links followed
	tick     int
	path     []byte      // of the current directory, with a trailing slash; behind a link the link's, as users see it
	behind   *linkedDir  // the directory behind a link that contains the current one; nil: none
	queue    []linkedDir // directories behind links that are still to be examined
	passed   map[linkedKey]bool
	ents     []entry
	found    []finding
	names    map[string]bool // the paths in found
	count    int             // paths reported, including those not kept
	rep      Report
}

func (s *Scanner) newWalk(now, since time.Time) *walk {
	w := &walk{s: s, deadline: now.Add(s.bounds.Time)}
	w.since = math.MinInt64
	// UnixNano is undefined outside 1678..2262; the zero time means everything.
	if since.Unix() > 0 {
		w.since = since.Add(-granularity).UnixNano()
	}
	w.since = min(w.since, s.pendingSince)
	return w
}

// run compares the known tree and then reads its new directories.
func (w *walk) run() (Report, error) {
	s := w.s
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
		w.reportOpened(s.root)
	}
	w.followLinks()
	s.pendingSince = nonePending
	if w.full || w.late || w.changing {
		s.pendingSince = w.since
	}
	s.last = time.Now()
	w.crowded = w.crowded || s.tracked >= maxTracked
	if w.full || w.late || s.root.pending || w.crowded {
		w.rep.Incomplete = true
	}
	w.rep.Unfinished = w.full || w.late
	s.partial = w.full || w.late || w.crowded
	s.watched = !w.gaps && !w.rep.Incomplete && s.pendingSince == nonePending && !s.root.unread
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
		w.undone(n)
		w.visit(n, w.s.fd, 0)
		return nil
	}
	fd, err := openAt(w.s.fd, ".", unix.O_RDONLY)
	if err != nil {
		return fmt.Errorf("scan: open the root: %w", err)
	}
	defer unix.Close(fd)
	w.read(n, fd)
	w.undone(n)
	w.visit(n, fd, 0)
	return nil
}

func (n *node) stale(st *stat) bool {
	return n.unread || n.racy || n.ctime != st.ctime || n.mtime != st.mtime
}

// visit enters the directories below n that the current phase is about.
func (w *walk) visit(n *node, fd, depth int) {
	pending := false
	for _, c := range n.dirs {
		// The known tree is compared even when no more entries may be read.
		if w.overdue() || w.fill && w.full {
			n.pending = true
			w.miss(c.name)
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

// enter examines the directory c below n, which is open as fd.
func (w *walk) enter(n, c *node, fd, depth int) {
	access, changed := uint64(unix.O_RDONLY), c.fresh
	if !c.unread {
		st, err := lstat(fd, c.name)
		if err != nil || st.id != c.id || !st.is(unix.S_IFDIR) {
			w.lost(n, "", err)
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
		w.miss("")
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

// inside examines the directory c, open as fd: it reads it or, if its times are the same, compares its files; then
// everything below.
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
	w.undone(c)
	w.visit(c, fd, depth)
	if fresh && c.track && !c.implied && w.count == before {
		w.reportDir(c)
	}
}

// undone reports the sensitive names in the directory n that came and left, in whatever order: a comparison shows nothing of them. What is
// below a directory that is new is reported anyway.
func (w *walk) undone(n *node) {
	for name, e := range w.s.events.in(n.wd) {
		if e.came && e.left && !slices.ContainsFunc(n.dirs, func(c *node) bool { return c.name == name && (c.unread || c.fresh) }) {
			w.report(name, e.row)
		}
	}
}

// miss records that an entry of the current directory, or with "" the directory itself, was not examined.
func (w *walk) miss(name string) {
	w.rep.Incomplete = true
	if w.rep.Missed == "" {
		w.rep.Missed = cmp.Or(strings.TrimSuffix(string(w.path)+name, "/"), ".")
	}
}

// lost records that an entry of n could not be examined: name in the current directory, or with "" the current directory itself.
// Unless the reason is missing permission, it is not the entry that was read: the job is still running, and its changes must be
// reported by the next pass.
func (w *walk) lost(n *node, name string, err error) {
	n.racy = true
	w.miss(name)
	if !errors.Is(err, fs.ErrPermission) {
		w.changing = true
	}
}

// unopened handles a directory that cannot be opened. A mount point is not part of the tree. A directory that has
// disappeared or been replaced by another file was swapped. Any other, for example with mode 000, is itself reported if
// it is sensitive and changed.
func (w *walk) unopened(n, c *node, changed bool, err error) {
	w.gaps = true
	switch {
	case errors.Is(err, unix.EXDEV):
		c.unread, c.pending, c.racy = false, false, false
		return
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EAGAIN):
		w.lost(n, "", err)
		return
	}
	w.miss("")
	if c.track && changed {
		w.reportDir(c)
	}
	c.racy, c.fresh = true, false
}

// files compares the sensitive files of a directory whose list of entries is unchanged.
func (w *walk) files(n *node, fd int) {
	for i := range n.files {
		f := &n.files[i]
		st, err := lstat(fd, f.name)
		if err != nil {
			w.lost(n, f.name, err)
			continue
		}
		w.rep.Entries++
		if !f.presence {
			w.configure(f, n, &st)
			f.wd = w.watchFile(fd, f, &st)
		}
		now := w.stateOf(f, &st)
		report := w.differs(f, now, &st)
		if report {
			w.report(f.name, f.row)
		}
		f.st = now
		w.lead(f, report)
	}
}

// stateOf returns a file's state from its metadata, and its target's if it is a link, which it follows.
func (w *walk) stateOf(f *file, st *stat) state {
	if f.presence {
		return state{mode: st.mode & unix.S_IFMT}
	}
	now := state{id: st.id, mode: st.mode, size: st.size, ctime: st.ctime}
	if st.is(unix.S_IFLNK) && f.link != nil {
		at := w.here(f.name)
		f.link.way = w.follow(f.name, w.s.places[at.place].path, at.path)
		now.to = f.link.way.target()
	}
	return now
}

// differs reports whether a remembered file was changed since. A link that leads to another file counts whatever that
// file's time: it may have been moved there.
func (w *walk) differs(f *file, now state, st *stat) bool {
	if f.st == now {
		t := max(now.ctime, now.to.ctime)
		return !f.presence && (!w.s.exact || coarse(t)) && w.after(t)
	}
	return w.after(max(st.ctime, now.to.ctime)) || f.st.to.id != now.to.id
}

func (w *walk) after(ctime int64) bool { return w.all || latest(ctime) >= w.since }

// overdue reports whether the pass has run out of time. It reads the clock only from time to time.
func (w *walk) overdue() bool {
	w.tick++
	return w.late || w.tick%256 == 0 && w.expired()
}

// expired is like overdue, but always reads the clock.
func (w *walk) expired() bool {
	w.late = w.late || time.Now().After(w.deadline)
	return w.late
}

// quota returns how many entries the current directory may use up: half of the rest, while that is large, so that one
// flooded directory leaves some for the others.
func (w *walk) quota() int {
	left := w.s.bounds.MaxEntries - w.rep.Entries
	if left > 4096 {
		left /= 2
	}
	return left
}
