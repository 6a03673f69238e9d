package runtimes

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// with returns a prepare function that finds other programs by name, preferably beside the program that needs them.
func with(names ...string) func(*search, *Choice) string {
	return func(s *search, c *Choice) string {
		for _, name := range names {
			beside := []string{filepath.Join(filepath.Dir(c.Path), name), filepath.Join(filepath.Dir(c.Real), name)}
			paths := append(beside, s.all(name)...)
			at := slices.IndexFunc(paths, s.usable)
			if at < 0 {
				return "it needs " + name + ", which was not found"
			}
			c.with[name] = paths[at]
			if dir := filepath.Dir(paths[at]); !slices.Contains(strings.Split(c.paths, ":"), dir) {
				c.paths = dir + ":" + c.paths
			}
		}
		return ""
	}
}

// leadingVersion returns the first two numbers of a version such as "22.6.0". It stops at the first part that is not a
// number.
func leadingVersion(s string) [2]int {
	var v [2]int
	for i, part := range strings.SplitN(s, ".", 3) {
		n, err := strconv.Atoi(part)
		if err != nil || i > 1 {
			break
		}
		v[i] = n
	}
	return v
}
