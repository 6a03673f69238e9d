package scan

import (
	"errors"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// An entry is a name in a directory that a pass must look at: a directory, or sensitive.
type entry struct {
	name string
	kid  kid
}

// A merge compares a directory's entries with those remembered.
type merge struct {
	n     *node
	st    stat // of the directory, before it was read
	bare  bool
	fresh bool // new entries count as made by the job, whatever their time
	gone  bool // missing entries count as removed by the job
	dirs  map[string]*node
	files map[string]file
	rest  []*node // ordinary directories; walked after the others
	moved bool    // the directory became or ceased to be a look-alike
}

// read reads the directory n, open for reading as fd, and compares it with the remembered state. New directories become
// unread nodes.
func (w *walk) read(n *node, fd int) {
	w.watchDir(n, fd)
	st, err := fstat(fd)
	if err != nil || st.id != n.id {
		w.lost(n, "", err)
		return
	}
	w.compareAccess(n, fd, &st)
	marks, whole := w.entries(n.zone, fd)
	m := w.newMerge(n, st, n.zone.tree && lookalike(marks))
	n.mtime, n.ctime = st.mtime, st.ctime
	n.racy = !whole || (!w.s.exact || coarse(st.ctime)) && latest(st.ctime) >= time.Now().Add(-granularity).UnixNano()
	n.unread = false
	for i := range w.ents {
		w.entry(m, &w.ents[i], fd)
	}
	if whole {
		w.removals(m)
	} else {
		m.keep()
	}
	n.dirs = append(n.dirs, m.rest...)
	n.bare, n.fresh = m.bare, false
	clear(w.ents)
}

func (w *walk) newMerge(n *node, st stat, bare bool) *merge {
	changed := w.after(st.ctime)
	m := &merge{n: n, st: st, bare: bare, gone: changed, moved: bare != n.bare}
	m.fresh = n.fresh || !w.s.exact && changed || bare && m.moved && changed
	if len(n.dirs) > 0 {
		m.dirs = make(map[string]*node, len(n.dirs))
		for _, c := range n.dirs {
			m.dirs[c.name] = c
		}
	}
	if len(n.files) > 0 {
		m.files = make(map[string]file, len(n.files))
		for _, f := range n.files {
			m.files[f.name] = f
		}
	}
	n.dirs, n.files = nil, nil
	return m
}

// keep retains the remembered entries of a directory that could not be read to its end.
func (m *merge) keep() {
	for _, c := range m.dirs {
		m.n.dirs = append(m.n.dirs, c)
	}
	for _, f := range m.files {
		m.n.files = append(m.n.files, f)
	}
}

// entries reads fd into w.ents. It returns the marks of a look-alike that it found, and whether it read to the end.
func (w *walk) entries(z *zone, fd int) (marks uint8, whole bool) {
	w.ents = w.ents[:0]
	whole = true
	limit := w.s.bounds.MaxDirs + maxTracked
	quota := w.quota()
	err := list(fd, w.s.buf, func(name []byte, kind uint8) bool {
		if quota--; quota < 0 || w.overdue() {
			whole, w.full = false, true
			w.miss("")
			return false
		}
		w.rep.Entries++
		k := z.lookup(name)
		marks |= k.mark
		switch {
		case kind == unix.DT_DIR && k.dir == nil && !k.bareOnly:
			return true
		case kind != unix.DT_DIR && kind != unix.DT_UNKNOWN && !k.track:
			return true
		case len(w.ents) >= limit:
			whole, w.crowded = false, true
			w.miss("")
			return true // sensitive names may be missed, but the marks of a look-alike are not
		}
		w.ents = append(w.ents, entry{string(name), k})
		return true
	})
	if err != nil {
		whole, w.crowded = false, true
		w.miss("")
	}
	return marks, whole
}

// entry compares one entry of the directory.
func (w *walk) entry(m *merge, e *entry, fd int) {
	k := e.kid
	if k.bareOnly && !m.bare {
		k = m.n.zone.other([]byte(e.name))
	}
	st, err := lstat(fd, e.name)
	if err != nil {
		// If the entry has disappeared meanwhile, that changed the directory's time and the next pass reads it again.
		if !errors.Is(err, fs.ErrNotExist) {
			w.lost(m.n, e.name, err)
		}
		return
	}
	switch {
	case st.is(unix.S_IFDIR) && k.dir != nil:
		w.mergeDir(m, e.name, &k, &st)
	case !st.is(unix.S_IFDIR) && k.track:
		w.mergeFile(m, e.name, &k, &st, fd)
	}
}

func (w *walk) mergeDir(m *merge, name string, k *kid, st *stat) {
	old := m.dirs[name]
	delete(m.dirs, name)
	if old != nil && old.id == st.id && old.zone == k.dir {
		m.add(old)
		return
	}
	fresh := !w.silent && (m.fresh || w.after(st.ctime))
	if old != nil {
		if old.id != st.id && (fresh || m.gone) {
			w.removed(old)
		}
		w.forget(old)
	}
	c := &node{
		name: name, zone: k.dir, id: st.id, row: k.row, track: k.trackDir, listed: k.listed || !k.dir.tree,
		unread: true, fresh: fresh, implied: m.fresh && (m.n.track || m.bare),
	}
	limit := w.s.bounds.MaxDirs
	if c.listed {
		limit += limit/8 + 64
	}
	if w.s.nodes >= limit {
		w.crowded, m.n.racy = true, true
		w.miss(name)
		if c.track && fresh {
			w.report(name, k.row)
		}
		return
	}
	w.s.nodes++
	m.add(c)
}

func (m *merge) add(c *node) {
	if c.listed {
		m.n.dirs = append(m.n.dirs, c)
	} else {
		m.rest = append(m.rest, c)
	}
}

func (w *walk) mergeFile(m *merge, name string, k *kid, st *stat, fd int) {
	f, known := m.files[name]
	f.name, f.row, f.presence = name, k.row, k.presence
	if !k.presence {
		w.configure(&f, m.n, st)
		f.wd = w.watchFile(fd, &f, st)
		f.link = newLink(k, st)
	}
	now := w.stateOf(&f, st)
	delete(m.files, name)
	report := known && w.differs(&f, now, st) || !known && (m.fresh || w.after(max(st.ctime, now.to.ctime)))
	if report {
		w.report(name, k.row)
	}
	f.st = now
	w.lead(&f, report)
	if !known {
		if w.s.tracked >= maxTracked {
			m.n.racy = true
			w.miss(name)
			return
		}
		w.s.tracked++
	}
	m.n.files = append(m.n.files, f)
}

// removals reports and forgets remembered entries that no longer exist.
func (w *walk) removals(m *merge) {
	for _, c := range m.dirs {
		if m.gone {
			w.removed(c)
		}
		w.forget(c)
	}
	for _, f := range m.files {
		if m.gone {
			w.report(f.name, f.row)
		}
		w.s.tracked--
	}
}

// removed reports the sensitive paths of a directory that is missing from the current one: the directory itself, or the
// paths below it.
func (w *walk) removed(c *node) {
	if c.track {
		w.report(c.name, c.row)
		return
	}
	end := len(w.path)
	w.path = append(append(w.path, c.name...), '/')
	for _, f := range c.files {
		w.report(f.name, f.row)
	}
	for _, d := range c.dirs {
		w.removed(d)
	}
	w.path = w.path[:end]
}

// forget subtracts a directory and everything below it from the counts.
func (w *walk) forget(c *node) {
	w.s.nodes--
	w.s.tracked -= len(c.files)
	for _, d := range c.dirs {
		w.forget(d)
	}
}
