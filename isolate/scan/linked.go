package scan

import "golang.org/x/sys/unix"

// A sensitive link that leads to a directory makes what it contains sensitive, as if the directory were in the link's
// place: .git/hooks -> ../tools makes tools/pre-commit a hook. Such directories are examined by each pass like those of
// the tree, after it, each once however many links lead to it.

// A link is what a file has that is a symbolic link. What a git configuration names is one too, see config.
type link struct {
	way      way
	zone     *zone // the rules for a directory in the link's place; nil: no rule is about its content
	trackDir bool  // a directory in the link's place is itself sensitive

	// Of what a git configuration names:

	from, to string  // an absolute directory, and the path from there
	include  bool    // the file is a configuration too
	was      *target // of the last pass; nil: it is new
}

// links returns the link that the file is, and what it names.
func (f *file) links() (list []*link) {
	if f.link != nil {
		list = append(list, f.link)
	}
	if f.config != nil {
		list = append(list, f.config.named...)
	}
	return list
}

// newLink returns the link of a file with the rules k and the state st; nil if it is not a link.
func newLink(k *kid, st *stat) *link {
	if !st.is(unix.S_IFLNK) {
		return nil
	}
	return &link{zone: k.dir, trackDir: k.trackDir}
}

// A linkedKey identifies a directory behind links, with the rules for it. All rules that make everything in a directory
// sensitive count as one, anyZone, except that for hooks.
type linkedKey struct {
	id   ident
	zone *zone
}

var anyZone = &zone{}

// A linkedDir is a directory behind a link.
type linkedDir struct {
	key    linkedKey
	zone   *zone
	at     spot
	path   string // of the link, as users see it, with a trailing slash
	row    int16
	track  bool
	silent bool // the link itself is reported
	end    int  // length of the part of walk.path that stands for at
}

// leads returns the directory behind l, the link at, if its content is sensitive. An ordinary directory is not: it is in
// the tree anyway. Nor is a directory that the rules would make sensitive as a whole and that contains the link itself:
// that would be the whole repository, or the directory in which the link's neighbors are.
func (s *Scanner) leads(l *link, at spot) (key linkedKey, ok bool) {
	y, z := &l.way, l.zone
	if y.end != arrived || !y.st.is(unix.S_IFDIR) {
		return linkedKey{}, false
	}
	if z == nil || z.tree && z.rest == z || z.all != noRow && (y.at.path == "" || at.within(y.at)) {
		return linkedKey{}, false
	}
	if z.all != noRow && z.rest == z && !z.samples {
		z = anyZone
	}
	return linkedKey{y.st.id, z}, true
}

// here returns the spot of an entry of the current directory.
func (w *walk) here(name string) spot {
	at, from := spot{place: w.s.own}, 0
	if w.behind != nil {
		at, from = w.behind.at, w.behind.end
	}
	return at.join(string(w.path[from:]) + name)
}

// follow returns where a path leads from the directory dir, for the entry name of the current directory.
func (w *walk) follow(name, dir, path string) way {
	e := w.s.events
	if w.links++; w.links > maxFollowed && e.on() {
		e, w.gaps = nil, true
	}
	y, gaps := w.s.follow(dir, path, e, w.overdue)
	w.gaps = w.gaps || gaps
	if y.end == undecided || y.end == closed {
		w.miss(name)
		w.gaps = true
	}
	return y
}

// enqueue has the directory behind l, a link of the file f in the current directory, examined. Users see it as path. reported tells
// that the link itself is reported.
func (w *walk) enqueue(f *file, l *link, path string, reported bool) {
	key, ok := w.s.leads(l, w.here(f.name))
	if !ok || w.passed[key] {
		return
	}
	if w.passed == nil {
		w.passed = map[linkedKey]bool{}
	}
	w.passed[key] = true
	w.queue = append(w.queue, linkedDir{
		key: key, zone: l.zone, at: l.way.at, path: path + "/", row: f.row, track: l.trackDir, silent: reported,
	})
}

// followLinks examines the directories behind links, and forgets those to which no link leads any more.
func (w *walk) followLinks() {
	for len(w.queue) > 0 {
		l := w.queue[0]
		w.queue = w.queue[1:]
		w.path = append(w.path[:0], l.path...)
		l.end = len(w.path)
		w.behind = &l
		w.examine(&l)
	}
	w.behind, w.path = nil, w.path[:0]
	for key, n := range w.s.linked {
		if !w.passed[key] && !w.full && !w.late {
			w.forget(n)
			delete(w.s.linked, key)
		}
	}
}

// examine compares the directory l with what is remembered of it. What is new behind a link that is reported is only
// remembered.
func (w *walk) examine(l *linkedDir) {
	n := w.s.linked[l.key]
	if n == nil {
		if w.s.nodes >= w.s.bounds.MaxDirs {
			w.crowded = true
			w.miss("")
			return
		}
		n = &node{zone: l.zone, id: l.key.id, row: l.row, track: l.track, listed: true, unread: true}
		w.s.linked[l.key] = n
		w.s.nodes++
		silent := w.silent
		w.silent = silent || l.silent
		defer func() { w.silent = silent }()
	}
	fd, err := w.s.openPath(l.at, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		w.unopened(n, n, false, err)
		return
	}
	defer unix.Close(fd)
	st, err := fstat(fd)
	if err != nil || st.id != n.id {
		w.lost(n, "", err)
		return
	}
	w.fill, w.level = n.unread, MaxDepth
	w.inside(n, fd, n.unread || n.stale(&st) || w.unwatched(n), 0)
	if w.fill = true; n.pending {
		w.visit(n, fd, 0)
	}
	if w.opened {
		w.reportOpened(n)
	}
}
