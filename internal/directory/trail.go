package directory

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxLinks is the number of symbolic links after which the kernel gives up on a path (path_resolution(7)).
const maxLinks = 40

// Trail returns every path that the kernel passes through when it looks up path, which must be absolute: each directory, each
// symbolic link, and what links lead to. The last one is where path leads. None of them has a symbolic link among its
// directories. Somebody who can write to one of them, or to the directory of one, can choose where path leads. A path that
// cannot be read or does not exist counts as no link.
func Trail(path string) []string {
	var trail []string
	here, rest := "/", strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			here = filepath.Dir(here)
			continue
		}
		next := filepath.Join(here, name)
		trail = append(trail, next)
		target, err := os.Readlink(next)
		if err != nil {
			here = next
			continue
		}
		if links++; links > maxLinks {
			break
		}
		if filepath.IsAbs(target) {
			here = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return append(trail, here)
}

// Passes reports whether the lookup of path, whose Trail is trail, passes through dir or something below it. Path and dir must
// be absolute and clean, and dir must have no symbolic link in its path.
func Passes(path string, trail []string, dir string) bool {
	return Within(path, dir) || slices.ContainsFunc(trail, func(p string) bool { return Within(p, dir) })
}
