package scan

import "golang.org/x/sys/unix"

// Each pass adds a watch for everything it compares before it reads the state: any later change is an event. If that
// succeeded for everything, the scanner is armed: without an event, the next pass would find nothing.

// watch makes the scanner's passes watch what they compare. The scanners of one server share e.
func (s *Scanner) watch(e *events) {
	if reportsAllChanges(s.fd) {
		s.events = e
	}
}

// armed reports whether everything that the scanner remembers is watched.
func (s *Scanner) armed() bool {
	return s.events.on() && s.watched
}

// unwatched reports whether the directory must be read again because it has no watch, or no longer has one.
func (w *walk) unwatched(n *node) bool { return w.s.events.on() && !w.s.events.has(n.wd) }

// watchDir watches the directory n, which is open as fd.
func (w *walk) watchDir(n *node, fd int) {
	if !w.s.events.on() {
		return
	}
	if n.wd = w.s.events.dir(fd, n.zone); n.wd == 0 {
		w.gaps = true
	}
}

// watchFile watches the sensitive file f in the directory dir, whose state is st, and returns its watch. It keeps f's
// watch if the inode is the same. Otherwise it updates st, which may be older than the new watch.
func (w *walk) watchFile(dir int, f *file, st *stat) int32 {
	e := w.s.events
	if !e.on() || f.st.id == st.id && e.has(f.wd) {
		return f.wd
	}
	fd, err := unix.Openat2(dir, f.name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		w.gaps = true
		return 0
	}
	defer unix.Close(fd)
	wd := e.file(fd)
	now, err := fstat(fd)
	if wd == 0 || err != nil || now.id != st.id {
		w.gaps = true
		return 0
	}
	*st = now
	return wd
}
