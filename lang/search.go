package lang

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of what is read of a host: directories of a version manager are a user's to write.
const (
	maxNames = 512     // of one directory
	maxSmall = 8 << 10 // bytes of a file
)

// A search is the directories of one moment. It is not changed once it is made.
type search struct {
	toolchains []string // links resolved
	never      []string // links resolved
	trees      []string
	caches     []string
	owner      uint32
	dirs       []string // in which programs are looked for, in this order
	path       string   // what PATH is in a job
	watched    []watched
	own        int   // how many of watched are about toolchains, which come first
	upTo       []int // for each of dirs: how many of watched decided on it and on those before it
}

// A watched is what decided on dirs, or is one of them.
type watched struct {
	stamp
	odd bool // whatever becomes of it, PATH stays as it is
}

// A stamp is a file or directory as it was.
type stamp struct {
	path     string
	dev, ino uint64
	mtime    unix.Timespec
}

func stampOf(path string) stamp {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return stamp{path: path} // nothing there is a state, too
	}
	return stamp{path, st.Dev, st.Ino, st.Mtim}
}

func newSearch(p Places) *search {
	s := &search{trees: p.host.trees, caches: p.host.caches, owner: p.host.owner}
	for _, t := range p.Toolchains {
		s.watch(t)
		if real, err := filepath.EvalSymlinks(t); err == nil && filepath.IsAbs(real) {
			s.toolchains = append(s.toolchains, real)
		}
	}
	for _, dir := range p.Never {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			s.never = append(s.never, real)
		}
		s.never = append(s.never, filepath.Clean(dir))
	}
	for _, t := range s.toolchains {
		for _, dir := range append([]string{t}, managed(t, s.watch)...) {
			if !s.add(filepath.Join(dir, "bin")) {
				s.add(dir)
			}
		}
	}
	s.own = len(s.watched)
	for _, pattern := range p.host.dirs {
		s.expand(pattern)
	}
	for n := range s.watched {
		w := &s.watched[n]
		w.odd = n >= s.own && (s.odd(w.path) || s.odd(filepath.Join(w.path, "*")))
	}
	s.path = strings.Join(slices.DeleteFunc(slices.Clone(s.dirs), s.odd), ":")
	return s
}

// expand adds a directory of the system, or those that a * stands for: the highest version first.
func (s *search) expand(pattern string) {
	parent, rest, many := strings.Cut(pattern, "/*")
	if !many {
		s.add(pattern)
		return
	}
	s.watch(parent)
	for _, name := range slices.Backward(names(parent)) {
		s.add(filepath.Join(parent, name) + rest)
	}
}

// add adds a directory if it is there; one that is not may come to be.
func (s *search) add(dir string) bool {
	s.watch(dir)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return false
	}
	if !slices.Contains(s.dirs, dir) && !s.forbidden(dir) {
		s.dirs, s.upTo = append(s.dirs, dir), append(s.upTo, len(s.watched))
	}
	return true
}

func (s *search) watch(path string) {
	s.watched = append(s.watched, watched{stamp: stampOf(path)})
}

// everything is all that was watched.
const everything = math.MaxInt

// fresh says whether nothing has changed of what decided on PATH, and of the first so many that were watched. What a link
// leads to is looked at each time.
func (s *search) fresh(first int) bool {
	for n := range s.watched {
		if w := &s.watched[n]; (n < first || !w.odd) && stampOf(w.path) != w.stamp {
			return false
		}
	}
	return true
}

// odd directories are for looking up programs only: they would make PATH long.
func (s *search) odd(dir string) bool {
	return strings.HasPrefix(dir, "/opt/") && !s.inToolchain(dir) || strings.HasPrefix(dir, "/usr/lib/")
}

// all returns where a program of that name might be.
func (s *search) all(name string) []string {
	var list []string
	for _, dir := range s.dirs {
		list = append(list, filepath.Join(dir, name))
	}
	return list
}

func (s *search) usable(path string) bool {
	_, why := s.check(path)
	return why == ""
}

func (s *search) real(path string) string {
	real, _ := s.check(path)
	return real
}

// absent is what check says of what is not there.
const absent = "it is not there"

// check returns where a program's path leads, and why it cannot be used or "". The path itself and what it leads to must
// both be what every jail shows: what is executed is the path, for the name is what some programs go by.
func (s *search) check(path string) (real, why string) {
	var st unix.Stat_t
	if errors.Is(unix.Lstat(path, &st), unix.ENOENT) { // most are not, and one look is enough to see it
		return "", absent
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", absent
	}
	if err != nil {
		return "", "its links cannot be followed"
	}
	info, err := os.Lstat(real)
	switch {
	case err != nil:
		return "", absent
	case s.forbidden(path) || s.forbidden(real):
		return "", "it is in a repository"
	case !s.shown(path) || !s.shown(real):
		return "", "it leads to " + real + ", which is neither the system's nor in a toolchain directory"
	case info.IsDir():
		return "", absent // "/opt/go" beside "/opt/go/bin"
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return "", "it is no program"
	case isShim(real, info):
		return "", "it is a version manager's, which asks its own directory for the program; name that in the configuration"
	}
	return real, ""
}

func (s *search) shown(path string) bool {
	return s.inToolchain(path) || slices.ContainsFunc(s.trees, func(tree string) bool { return below(path, tree) })
}

func (s *search) inToolchain(path string) bool {
	return slices.ContainsFunc(s.toolchains, func(t string) bool { return below(path, t) })
}

func (s *search) forbidden(path string) bool {
	return slices.ContainsFunc(s.never, func(dir string) bool { return below(path, dir) })
}

// below says whether path is dir or lies in it. Both are absolute and clean.
func below(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// names returns what is in a directory, in the order of versions: go1.9 comes before go1.10. It stops at maxNames.
func names(dir string) []string {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK|unix.O_NOCTTY, 0) // to open a FIFO waits
	if err != nil {
		return nil
	}
	defer d.Close()
	list, err := d.Readdirnames(maxNames)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	slices.SortFunc(list, byVersion)
	return list
}

// byVersion compares names with the numbers in them as numbers.
func byVersion(a, b string) int {
	for a != "" && b != "" {
		x, y := digits(a), digits(b)
		if x == "" || y == "" {
			if a[0] != b[0] {
				return int(a[0]) - int(b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		a, b = a[len(x):], b[len(y):]
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if len(x) != len(y) {
			return len(x) - len(y)
		}
		if x != y {
			return strings.Compare(x, y)
		}
	}
	return len(a) - len(b)
}

// digits returns the number that s starts with.
func digits(s string) string { return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))] }
