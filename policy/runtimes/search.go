package runtimes

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A search is a snapshot of the directories. It is immutable.
type search struct {
	toolchains []string // links resolved
	never      []string // links resolved
	trees      []string
	caches     []string
	owner      uint32   // of system files
	dirs       []string // searched for programs in this order
	path       string   // PATH of jobs
	watched    []stamp  // of the directories of path, and of what they depend on
	beside     []stamp  // of the other dirs, and of what they depend on
}

// A stamp identifies the state of a file or directory.
type stamp struct {
	path     string
	dev, ino uint64
	mtime    unix.Timespec
}

func stampOf(path string) stamp {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return stamp{path: path} // absence is a state, too
	}
	return stamp{path, st.Dev, st.Ino, st.Mtim}
}

func newSearch(p Places) *search {
	s := &search{trees: p.host.trees, caches: p.host.caches, owner: p.host.owner}
	// What says which directories of toolchains are in PATH may itself lie elsewhere.
	always := func(path string) { s.watched = append(s.watched, stampOf(path)) }
	for _, t := range p.Toolchains {
		if IsModuleCache(t) {
			continue
		}
		always(t)
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
		for _, dir := range append([]string{t}, managed(t, always)...) {
			if !s.add(filepath.Join(dir, "bin")) {
				s.add(dir)
			}
		}
	}
	for _, pattern := range p.host.dirs {
		s.expand(pattern)
	}
	s.path = strings.Join(slices.DeleteFunc(slices.Clone(s.dirs), s.odd), ":")
	return s
}

// expand adds a directory of the system. If the pattern has a *, it adds all matches, the highest version first.
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

// add adds a directory if it exists, and watches it in any case. It reports whether the directory exists.
func (s *search) add(dir string) bool {
	s.watch(dir)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return false
	}
	if !slices.Contains(s.dirs, dir) && !s.forbidden(dir) {
		s.dirs = append(s.dirs, dir)
	}
	return true
}

func (s *search) watch(path string) {
	list := &s.watched
	if s.odd(path) {
		list = &s.beside
	}
	*list = append(*list, stampOf(path))
}

// changed reports whether a path is not as it was. Links to programs are not watched: check resolves them each time.
func changed(list []stamp) bool {
	return slices.ContainsFunc(list, func(was stamp) bool { return stampOf(was.path) != was })
}

// odd reports whether dir is searched for programs but left out of PATH, which would become long.
func (s *search) odd(dir string) bool {
	return strings.HasPrefix(dir, "/opt/") && !s.inToolchain(dir) || strings.HasPrefix(dir, "/usr/lib/")
}

// all returns the possible paths of a program.
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

// absent is the reason of check for a program that does not exist.
const absent = "not found"

// check resolves the path of a program, and returns why it cannot be used, or "". Both the path and its target must be
// shown in every jail: the path itself is executed, since some programs behave according to the name they are called by.
func (s *search) check(path string) (real, why string) {
	var st unix.Stat_t
	if errors.Is(unix.Lstat(path, &st), unix.ENOENT) { // fast path: most paths do not exist
		return "", absent
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", absent
	}
	if err != nil {
		return "", "its symbolic links cannot be resolved"
	}
	info, err := os.Lstat(real)
	switch {
	case err != nil:
		return "", absent
	case s.forbidden(path) || s.forbidden(real):
		return "", "it is in a repository"
	case !s.shown(path) || !s.shown(real):
		return "", "it leads to " + real + ", which is neither in a system directory nor in a toolchain directory"
	case info.IsDir():
		return "", absent // for example "/opt/go" beside "/opt/go/bin"
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return "", "it is not an executable file"
	case isShim(real, info):
		return "", "it is a version manager's shim; add the manager's directory to the toolchains in the configuration"
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
