package scan

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// Each pass sees to it that all that it compares is watched, and watched before it is looked at: what happens later is an
// event. If that holds for everything, the scanner is armed, and without an event the next pass would find nothing.

const (
	maxFollowed = 64  // symbolic links that one pass follows
	maxSteps    = 256 // names on the way of one
)

// watch has the scanner's passes watch what they look at. e is shared by those of one server.
func (s *Scanner) watch(e *events) {
	if tellsAll(s.fd) {
		s.events = e
	}
}

// armed says whether all that is remembered is watched.
func (s *Scanner) armed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events.on() && s.watched
}

// unwatched says whether the directory must be read again because it is not watched yet, or not any more.
func (w *walk) unwatched(n *node) bool { return w.s.events.on() && !w.s.events.has(n.wd) }

// watchDir watches the directory n, open as fd.
func (w *walk) watchDir(n *node, fd int) {
	if !w.s.events.on() {
		return
	}
	if n.wd = w.s.events.dir(fd); n.wd == 0 {
		w.gaps = true
	}
}

// watchFile watches the sensitive file f in the directory dir, whose state is st, and returns its watch. f has that of the inode
// that was known. The state is asked for again, for the first one may be older than the watch.
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

// watchLink watches all on which it depends where the link at path leads, and the file there.
func (w *walk) watchLink(path string) {
	e := w.s.events
	if !e.on() || w.gaps {
		return
	}
	if w.links++; w.links > maxFollowed || !e.follow(w.s.fd, path) {
		w.gaps = true
	}
}

// follow resolves a path below root as openat2(2) does with RESOLVE_BENEATH, step by step. Each directory is watched before
// a name is looked up in it. A path that leads nowhere does so until a directory on its way changes. It returns false if
// something is not watched.
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
			return true // outside, where nothing is looked up
		case name == "..":
			unix.Close(dirs[last])
			dirs = dirs[:last]
			continue
		}
		fd, content, ok := e.step(dirs[last], name, len(rest) == 0)
		switch {
		case fd >= 0:
			dirs = append(dirs, fd)
		case !ok || content == "" || content[0] == '/': // an absolute one leads outside
			return ok
		default:
			rest = append(strings.Split(content, "/"), rest...)
		}
	}
	return true
}

// step looks name up in dir. It returns a directory, watched; or what a link says; or neither, where the way ends. The last
// name's file is watched. ok is false if something is not watched.
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
