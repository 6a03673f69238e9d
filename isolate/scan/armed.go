package scan

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// Each pass adds a watch for everything it compares before it reads the state: any later change is an event. If that
// succeeded for everything, the scanner is armed: without an event, the next pass would find nothing.

const (
	maxFollowed = 64  // symbolic links that one pass follows
	maxSteps    = 256 // path components of one link
)

// watch makes the scanner's passes watch what they compare. The scanners of one server share e.
func (s *Scanner) watch(e *events) {
	if reportsAllChanges(s.fd) {
		s.events = e
	}
}

// armed reports whether everything that the scanner remembers is watched.
func (s *Scanner) armed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events.on() && s.watched
}

// unwatched reports whether the directory must be read again because it has no watch, or no longer has one.
func (w *walk) unwatched(n *node) bool { return w.s.events.on() && !w.s.events.has(n.wd) }

// watchDir watches the directory n, which is open as fd.
func (w *walk) watchDir(n *node, fd int) {
	if !w.s.events.on() {
		return
	}
	if n.wd = w.s.events.dir(fd); n.wd == 0 {
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
	wd := int32(0)
	if f.content == noContent {
		wd = e.file(fd)
	} else {
		wd = e.content(fd)
	}
	now, err := fstat(fd)
	if wd == 0 || err != nil || now.id != st.id {
		w.gaps = true
		return 0
	}
	*st = now
	return wd
}

// watchLink watches every directory that determines where the link at path leads, and the file there.
func (w *walk) watchLink(path string) {
	e := w.s.events
	if !e.on() || w.gaps {
		return
	}
	if w.links++; w.links > maxFollowed || !e.follow(w.s.fd, path) {
		w.gaps = true
	}
}

// follow resolves a path below root as openat2(2) does with RESOLVE_BENEATH, step by step. It watches each directory
// before it looks up a name in it. A path that leads nowhere does so until a directory on its way changes. follow returns
// false if something could not be watched.
func (e *events) follow(root int, path string) bool {
	dirs := []int{root}
	defer func() {
		for _, fd := range dirs[1:] {
			unix.Close(fd)
		}
	}()
	if e.dir(root) == 0 {
		return false
	}
	for rest, steps := strings.Split(path, "/"), 0; len(rest) > 0; steps++ {
		name, last := rest[0], len(dirs)-1
		rest = rest[1:]
		switch {
		case steps > maxSteps:
			return false
		case name == "" || name == ".":
			continue
		case name == ".." && last == 0:
			return true // outside the root; not followed
		case name == "..":
			unix.Close(dirs[last])
			dirs = dirs[:last]
			continue
		}
		fd, content, ok := e.step(dirs[last], name, len(rest) == 0)
		switch {
		case fd >= 0:
			dirs = append(dirs, fd)
		case !ok || content == "" || content[0] == '/': // an absolute target leads outside the root
			return ok
		default:
			rest = append(strings.Split(content, "/"), rest...)
		}
	}
	return true
}

// step looks name up in dir. It returns the descriptor of a directory, which it watches; or the content of a link; or
// neither, where the path ends. For the last component it watches the file. ok is false if something could not be
// watched.
func (e *events) step(dir int, name string, last bool) (fd int, content string, ok bool) {
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return -1, "", errors.Is(err, unix.ENOENT)
	}
	st, err := fstat(fd)
	if err == nil && st.is(unix.S_IFDIR) && e.dir(fd) != 0 {
		return fd, "", true
	}
	defer unix.Close(fd)
	switch {
	case err != nil || st.is(unix.S_IFDIR):
		return -1, "", false
	case st.is(unix.S_IFLNK):
		b := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(fd, "", b)
		return -1, string(b[:max(n, 0)]), err == nil
	}
	return -1, "", !last || e.file(fd) != 0
}
