package runtimes

import (
	"slices"
	"strings"
	"testing"
)

// TestFresh checks that a choice stays valid until something changes that it or PATH depends on.
func TestFresh(t *testing.T) {
	f := newFake(t, "usr/local/bin/x", "usr/bin/x", "home/tools/bin/x")
	s := f.find([]string{"home/tools"}, nil).last()
	if len(s.dirs) < 3 || len(s.upTo) != len(s.dirs) || !slices.IsSorted(s.upTo) {
		t.Fatalf("%q: %d", s.dirs, s.upTo)
	}
	for n, dir := range s.dirs {
		if at := slices.IndexFunc(s.watched, func(w watched) bool { return w.path == dir }); at < 0 || at >= s.upTo[n] {
			t.Errorf("%s is watched at index %d, which is not below upTo %d", dir, at, s.upTo[n])
		}
	}
	for n := range s.watched {
		w := &s.watched[n]
		was := *w
		for _, odd := range []bool{false, true} {
			w.ino, w.odd = was.ino+1, odd
			for first, holds := range map[int]bool{0: odd, n: odd, n + 1: false, everything: false} {
				if s.fresh(first) != holds {
					t.Errorf("%s has changed, odd is %v: fresh(%d) is %v", w.path, odd, first, !holds)
				}
			}
		}
		*w = was
	}
	if !s.fresh(everything) {
		t.Error("not fresh, although nothing has changed")
	}
}

// TestOddDirectories checks that directories which do not affect PATH are never in PATH, unless a toolchain contains
// them.
func TestOddDirectories(t *testing.T) {
	for _, toolchains := range [][]string{nil, {"/opt"}, {"/usr/bin"}} {
		s := newSearch(Places{Toolchains: toolchains, host: system})
		inOpt := s.inToolchain("/opt/any")
		for n, w := range s.watched {
			below := strings.HasPrefix(w.path, "/usr/lib/") || !inOpt && (w.path == "/opt" || strings.HasPrefix(w.path, "/opt/"))
			if want := below && n >= s.own; w.odd != want {
				t.Errorf("%q: %s: odd is %v", toolchains, w.path, w.odd)
			}
		}
		for _, dir := range strings.Split(s.path, ":") {
			if n := slices.IndexFunc(s.watched, func(w watched) bool { return w.path == dir }); n < 0 || s.watched[n].odd {
				t.Errorf("%q: PATH has %s, which is not watched", toolchains, dir)
			}
		}
	}
}
