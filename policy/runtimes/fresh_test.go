package runtimes

import (
	"slices"
	"strings"
	"testing"
)

// TestFresh checks that a search is valid until one of the paths changes that it depends on, and that all directories of PATH are among
// these.
func TestFresh(t *testing.T) {
	f := newFake(t, "usr/local/bin/x", "usr/bin/x", "home/tools/bin/x")
	s := f.find([]string{"home/tools"}, nil).current()
	for n := range s.watched {
		was := s.watched[n]
		s.watched[n].ino++
		if s.fresh() {
			t.Errorf("%s has changed, and the search is fresh", was.path)
		}
		s.watched[n] = was
	}
	if !s.fresh() {
		t.Error("not fresh, although nothing has changed")
	}
	for _, dir := range append(strings.Split(s.path, ":"), s.dirs...) {
		if !slices.ContainsFunc(s.watched, func(w stamp) bool { return w.path == dir }) {
			t.Errorf("%s is not watched", dir)
		}
	}
}

// TestOddDirectories checks that directories of single programs are not in PATH, unless a toolchain contains them.
func TestOddDirectories(t *testing.T) {
	for _, toolchains := range [][]string{nil, {"/opt"}, {"/usr/bin"}} {
		s := newSearch(Places{Toolchains: toolchains, host: system})
		for _, dir := range strings.Split(s.path, ":") {
			if strings.HasPrefix(dir, "/usr/lib/") || strings.HasPrefix(dir, "/opt/") && !s.inToolchain(dir) {
				t.Errorf("%q: PATH has %s", toolchains, dir)
			}
		}
	}
}
