package runtimes

import (
	"slices"
	"strings"
	"testing"
)

// TestFresh checks that a search is made again when one of the paths has changed that it depends on, and for PATH alone when one of
// those of PATH has.
func TestFresh(t *testing.T) {
	f := newFake(t, "usr/local/bin/x", "usr/bin/x", "home/tools/bin/x")
	i := f.find([]string{"home/tools"}, nil)
	s := i.current(true)
	s.beside = append(s.beside, stampOf(f.at("usr/lib/go/bin"))) // of the host, which the test's is not
	for _, list := range [][]stamp{s.watched, s.beside} {
		for n := range list {
			was := list[n]
			list[n].ino++
			if i.current(true) == s {
				t.Errorf("%s has changed, and the search is not made again", was.path)
			}
			list[n], i.c.search = was, s
		}
	}
	s.beside[0].ino++
	if i.current(false) != s {
		t.Error("PATH is searched again, although nothing has changed in its directories")
	}
	if i.current(true) == s {
		t.Error("programs are not searched again")
	}
}

// TestOddDirectories checks that directories of single programs are not in PATH, unless a toolchain contains them, and that all
// directories are watched.
func TestOddDirectories(t *testing.T) {
	for _, toolchains := range [][]string{nil, {"/opt"}, {"/usr/bin"}} {
		s := newSearch(Places{Toolchains: toolchains, host: system})
		for _, dir := range s.dirs {
			if !slices.ContainsFunc(slices.Concat(s.watched, s.beside), func(w stamp) bool { return w.path == dir }) {
				t.Errorf("%q: %s is not watched", toolchains, dir)
			}
		}
		for _, dir := range strings.Split(s.path, ":") {
			if !slices.ContainsFunc(s.watched, func(w stamp) bool { return w.path == dir }) {
				t.Errorf("%q: PATH has %s, which is not watched for it", toolchains, dir)
			}
			if strings.HasPrefix(dir, "/usr/lib/") || strings.HasPrefix(dir, "/opt/") && !s.inToolchain(dir) {
				t.Errorf("%q: PATH has %s", toolchains, dir)
			}
		}
	}
}
