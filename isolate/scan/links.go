package scan

import (
	"errors"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds for following one link. The kernel gives up after as many links, so a path with more leads nowhere for anybody.
const (
	maxChain    = 40   // MAXSYMLINKS in fs/namei.c
	maxSteps    = 4096 // path components
	maxFollowed = 64   // links of one pass that are watched
	swapRetries = 16   // attempts to follow a link while directories on its way are swapped
)

// A place is a directory that jobs write to and that is mounted in the jail at its own path: the repository, or the git
// directory that it is a worktree of.
type place struct {
	fd   int
	path string // absolute and without links; "" if unknown
}

// Indexes of places.
const (
	repoPlace = iota
	commonPlace
)

// A spot is a file below a place, with no link in its path.
type spot struct {
	place int    // index in Scanner.places
	path  string // relative; "" is the place itself
}

// join returns the spot of an entry of the directory at.
func (at spot) join(name string) spot {
	if at.path != "" {
		name = at.path + "/" + name
	}
	return spot{at.place, name}
}

// split returns the directory that contains at, and the name in it. at is not a place itself.
func (at spot) split() (dir spot, name string) {
	i := strings.LastIndexByte(at.path, '/')
	return spot{at.place, at.path[:max(i, 0)]}, at.path[i+1:]
}

// within reports whether at is dir or lies below it.
func (at spot) within(dir spot) bool {
	return at.place == dir.place && (dir.path == "" || below(at.path, dir.path))
}

// below reports whether path is dir or lies below it.
func below(path, dir string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/')
}

// An ending is how following a link ended.
type ending uint8

const (
	nowhere   ending = iota // nothing exists there, or it is outside of all places, where jobs cannot write
	arrived                 // a file or directory of a place
	closed                  // a directory on the way cannot be searched; its owner, a job, could change that
	undecided               // a bound was reached, or directories on the way are being swapped
)

// A way is where a link leads.
type way struct {
	end   ending
	at    spot   // of arrived the target, of closed the directory; of nowhere the path at which nothing exists, if it is in a place
	st    stat   // of arrived the target's state
	links []spot // the links on the way, the link itself first
}

// A target is what a link leads to: its identity, and the time of its last change. A directory's time is omitted, as it does not reflect
// changes of the files below.
type target struct {
	id    ident
	ctime int64
}

// target returns what the link leads to; zero if that is nothing.
func (y *way) target() (to target) {
	if y.end != arrived {
		return target{}
	}
	if to.id = y.st.id; y.st.is(unix.S_IFREG) {
		to.ctime = y.st.ctime
	}
	return to
}

// A follower resolves one path as path_resolution(7) describes, component by component, in the tree of the host: a path
// may leave the places and come back, because the directories above a place are known, and none of them is a link. Each
// lookup opens one name below a directory that is open, and follows no link itself. What lies outside is not looked up.
type follower struct {
	s     *Scanner
	e     *events // watches each directory on the way before a name is looked up in it; nil: none
	over  func() bool
	dir   string   // absolute path of the current directory; "" is the root of the file system
	name  string   // the component that was looked up last
	rest  []string // components that are still to be resolved
	steps int
	gaps  bool // something on the way is not watched
	way   way
}

// follow returns where a path leads from the directory dir, which is absolute and has no link in it. It stops when over returns true.
func (s *Scanner) follow(dir, path string, e *events, over func() bool) (y way, gaps bool) {
	if strings.HasPrefix(path, "/") {
		dir = ""
	}
	for range swapRetries {
		f := follower{s: s, e: e, over: over, dir: dir, rest: strings.Split(path, "/")}
		swapped := f.run()
		y, gaps = f.way, gaps || f.gaps
		if !swapped {
			break
		}
	}
	return y, gaps
}

// run resolves the path. It returns true if it is undecided because a directory was swapped meanwhile.
func (f *follower) run() (swapped bool) {
	for len(f.rest) > 0 {
		name := f.rest[0]
		f.name, f.rest = name, f.rest[1:]
		f.steps++
		switch {
		case f.steps > maxSteps || f.over():
			f.way.end = undecided
			return false
		case name == "" || name == ".":
		case name == "..":
			f.dir = f.dir[:max(strings.LastIndexByte(f.dir, '/'), 0)]
		default:
			if more, err := f.enter(name); !more {
				return f.stopped(err)
			}
		}
	}
	at, ok := f.s.spotOf(f.dir)
	if !ok {
		return false
	}
	return f.stopped(f.arrive(at))
}

// stopped returns whether the error with which a lookup ended means that a directory was swapped. Any unknown error leaves
// the path undecided.
func (f *follower) stopped(err error) (swapped bool) {
	switch {
	case err == nil, errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.EXDEV):
		return false
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		f.way.at, _ = f.s.spotOf(path.Join(append([]string{f.dir, f.name}, f.rest...)...))
		return false
	}
	if f.way.end != closed {
		f.way.end = undecided
	}
	return f.way.end == undecided && errors.Is(err, unix.ELOOP)
}

// enter looks up a name in the current directory. It returns false, with the error of the lookup, where the path ends.
func (f *follower) enter(name string) (more bool, err error) {
	next := f.dir + "/" + name
	at, ok := f.s.spotOf(next)
	if !ok || at.path == "" {
		f.dir = next
		return ok || f.s.above(next), nil
	}
	fd, err := f.lookUp(at)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	st, err := fstat(fd)
	switch {
	case err != nil:
		return false, err
	case st.is(unix.S_IFDIR):
		f.dir = next
		return true, nil
	case st.is(unix.S_IFLNK):
		return f.link(at, fd)
	case len(f.rest) > 0:
		return false, unix.ENOTDIR
	}
	return false, f.arriveFile(at, fd)
}

// link continues with the content of the link at, open as fd.
func (f *follower) link(at spot, fd int) (more bool, err error) {
	if len(f.way.links) == maxChain {
		return false, nil
	}
	f.way.links = append(f.way.links, at)
	b := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", b)
	if err != nil || n <= 0 {
		return false, err
	}
	if b[0] == '/' {
		f.dir = ""
	}
	f.rest = append(strings.Split(string(b[:n]), "/"), f.rest...)
	return true, nil
}

// lookUp opens a file with O_PATH, and watches its directory.
func (f *follower) lookUp(at spot) (int, error) {
	dir, name := at.split()
	parent, err := f.s.openPath(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return -1, f.denied(dir, err)
	}
	defer unix.Close(parent)
	f.watch(parent, f.e.way)
	fd, err := openFile(parent, name, unix.O_PATH)
	return fd, f.denied(at, err)
}

// watch watches an open file by one of the functions of f.e.
func (f *follower) watch(fd int, by func(fd int) int32) {
	if f.e.on() && by(fd) == 0 {
		f.gaps = true
	}
}

// denied returns the error err of opening a file. If permission was missing, it ends at the directory that cannot be
// searched: the lowest one above that can be opened.
func (f *follower) denied(at spot, err error) error {
	for errors.Is(err, unix.EACCES) && f.way.end != closed && at.path != "" {
		at, _ = at.split()
		fd, open := f.s.openPath(at, unix.O_PATH|unix.O_DIRECTORY)
		if open == nil {
			unix.Close(fd)
			f.way.end, f.way.at = closed, at
		}
	}
	return err
}

// arrive ends at a directory.
func (f *follower) arrive(at spot) error {
	fd, err := f.s.openPath(at, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	f.watch(fd, f.e.way)
	return f.end(at, fd)
}

// arriveFile ends at any other file, which it watches.
func (f *follower) arriveFile(at spot, fd int) error {
	f.watch(fd, f.e.file)
	return f.end(at, fd)
}

func (f *follower) end(at spot, fd int) error {
	st, err := fstat(fd)
	if err == nil {
		f.way.end, f.way.at, f.way.st = arrived, at, st
	}
	return err
}

// spotOf returns the spot with an absolute path, if one of the places contains it.
func (s *Scanner) spotOf(path string) (at spot, ok bool) {
	for i, p := range s.places {
		if p.path != "" && below(path, p.path) && (!ok || len(p.path) > len(s.places[at.place].path)) {
			at, ok = spot{i, strings.TrimPrefix(path[len(p.path):], "/")}, true
		}
	}
	return at, ok
}

// above reports whether a place lies below the directory with an absolute path.
func (s *Scanner) above(path string) bool {
	for _, p := range s.places {
		if below(p.path, path) {
			return true
		}
	}
	return false
}

// openPath opens a file below its place, following no link.
func (s *Scanner) openPath(at spot, access uint64) (int, error) {
	path := at.path
	if path == "" {
		path = "."
	}
	return openFile(s.places[at.place].fd, path, access)
}
