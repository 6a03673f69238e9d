package scan

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// acl returns an access control list in the kernel's format (posix_acl_xattr.h), which grants perm to user 65534.
func acl(perm, mask uint16) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{1, 7, 1<<32 - 1}, {2, perm, 65534}, {4, 5, 1<<32 - 1}, {0x10, mask, 1<<32 - 1}, {0x20, 5, 1<<32 - 1}} {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

// TestAccessLists: a directory that gets an access control list for another user is reported, though its permissions are
// unchanged; so is one whose list changes.
func TestAccessLists(t *testing.T) {
	for name, tc := range map[string]struct{ path, attr string }{
		"default of hooks":          {".git/hooks", "system.posix_acl_default"},
		"access of hooks":           {".git/hooks", "system.posix_acl_access"},
		"default of the root":       {".", "system.posix_acl_default"},
		"access of one above":       {"a", "system.posix_acl_access"},
		"default of one of agents'": {"a/.claude/x", "system.posix_acl_default"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			shell(t, dir, "chmod 755 .; mkdir -p .git/hooks a/.claude/x; chmod 755 .git/hooks a a/.claude/x; echo > .git/hooks/pre-push")
			path := filepath.Join(dir, tc.path)
			if err := unix.Setxattr(path, tc.attr, acl(1, 5), 0); err != nil {
				t.Skipf("no access control lists here: %v", err)
			}
			s := scanner(t, dir, Bounds{})
			baseline(t, s)
			for _, list := range [][]byte{acl(5, 5), nil} {
				since := settle()
				var err error
				if list != nil {
					err = unix.Setxattr(path, tc.attr, list, 0)
				} else {
					err = unix.Removexattr(path, tc.attr)
				}
				if err != nil {
					t.Fatal(err)
				}
				if rep := changed(t, s, since); !slices.Equal(rep.Paths, []string{tc.path}) {
					t.Errorf("%q", rep.Paths)
				}
				if rep := changed(t, s, since); len(rep.Paths) > 0 {
					t.Errorf("reported again: %q", rep.Paths)
				}
			}
		})
	}
}

// TestHidesMore: two versions of a file of git's are compared by the entries that they hide.
func TestHidesMore(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("git"))
	dir := t.TempDir()
	shell(t, dir, repository)
	rules := RepositoryRules()
	_, rules = rules.Entry(".git", true, nil)
	h := rules.Hides("index", nil)
	if !h.Any() || rules.Hides("HEAD", nil).Any() || RepositoryRules().Hides("index", func() bool { return false }).Any() {
		t.Fatal("the rules have no content for the file")
	}
	open := func(name string) *os.File {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	shell(t, dir, `cp .git/index plain; git update-index --assume-unchanged README.md; cp .git/index one
		echo > n; git add n; cp .git/index added; git update-index --skip-worktree n; cp .git/index two; head -c 100 two > cut; : > empty`)
	never := func() bool { return false }
	for _, tc := range []struct {
		old, new string
		want     bool
	}{
		{"", "plain", false},
		{"", "one", true},
		{"plain", "one", true},
		{"one", "plain", false},
		{"one", "added", false},
		{"added", "two", true},
		{"two", "one", false},
		{"plain", "cut", true},
		{"plain", "empty", true},
		{"cut", "plain", false},
		{"cut", "one", true},
		{"plain", ".git", true},
	} {
		var old *os.File
		if tc.old != "" {
			old = open(tc.old)
		}
		if got := h.HidesMore(old, open(tc.new), never); got != tc.want {
			t.Errorf("%s, then %s: %v", tc.old, tc.new, got)
		}
	}
	if !h.HidesMore(open("plain"), open("plain"), func() bool { return true }) {
		t.Error("a file that was not read in time counts as hiding nothing")
	}
}

// TestManyHidden: more than maxHidden flagged entries are compared by their sum.
func TestManyHidden(t *testing.T) {
	set := func(from, to int) *hidden {
		h := &hidden{known: true}
		for i := from; i < to; i++ {
			h.add(maphash.Comparable(testSeed, i))
		}
		slices.Sort(h.each)
		return h
	}
	many := set(0, maxHidden+2)
	if len(many.each) > maxHidden || !many.within(set(0, maxHidden+2)) || many.within(set(1, maxHidden+3)) || set(0, maxHidden+3).within(many) || !set(3, 4).within(set(0, 5)) {
		t.Error("wrong result for more than maxHidden entries")
	}
}

var testSeed = maphash.MakeSeed()

// FuzzHides: the reader of git's files reports malformed input and does not fail in any other way.
func FuzzHides(f *testing.F) {
	f.Add([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00"+strings.Repeat("\x00", 20)), false)
	f.Add([]byte("# pack-refs\n11 refs/replace/22\n"), true)
	f.Fuzz(func(t *testing.T, b []byte, refs bool) {
		c := indexFile
		if refs {
			c = packedRefs
		}
		h := hides(bytes.NewReader(b), int64(len(b)), c, testSeed, func() bool { return false })
		if !h.known && (h.count > 0 || h.each != nil) || len(h.each) > h.count || h.count > len(b) {
			t.Errorf("%+v", h)
		}
	})
}

// TestIndexNotHeld: after git has read its index, the scanner checks whether it is open for writing, but does not report
// it as Held and does not read it again. The scanner's own open(2) causes no event.
func TestIndexNotHeld(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("git"))
	dir := t.TempDir()
	shell(t, dir, repository)
	s := serving(t, dir)
	armed(t, s)
	if _, err := os.ReadFile(filepath.Join(dir, ".git", "index")); err != nil {
		t.Fatal(err)
	}
	if !hasEvents(s.events.fd) {
		t.Error("opening the index caused no event")
	}
	if a, got := ask(t, s, OpChanged, time.Time{}); !a.Armed || a.Held || len(got) > 0 || hasEvents(s.events.fd) {
		t.Errorf("%+v", a)
	}
	since := settle()
	b := mapped(t, filepath.Join(dir, ".git", "index"))
	b[0] = 'X'
	must(t, unix.Munmap(b))
	if _, got := ask(t, s, OpChanged, since); !slices.Equal(got, []string{".git/index"}) {
		t.Errorf("%q", got)
	}
	armed(t, s)
	ask(t, s, OpChanged, time.Now())
}

// memoryDir returns a new directory on tmpfs, removed when the test ends.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "corral-test-") //nolint:usetesting // the test's own directory is on a disk
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestContentMapped: stores through mapped memory of the index or of packed references are reported while a process can
// still make them, even if no time changes and no event occurs.
func TestContentMapped(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("git"))
	const firstFlags = 12 + 40 + 20 // in an index: header, stat and object name
	for _, tc := range []struct {
		path  string
		dir   func(t *testing.T) string
		evil  func(b []byte)
		exact bool // the first store changes the time
	}{
		{".git/index", func(t *testing.T) string { return t.TempDir() }, func(b []byte) { b[firstFlags] |= assumeValid >> 8 }, true},
		{".git/index", memoryDir, func(b []byte) { b[firstFlags] |= assumeValid >> 8 }, false},
		{".git/packed-refs", func(t *testing.T) string { return t.TempDir() }, func(b []byte) {
			copy(b[bytes.Index(b, []byte("refs/tags/")):], "refs/replace/")
		}, true},
	} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s exact=%v again=%v", tc.path, tc.exact, again), func(t *testing.T) {
				dir := tc.dir(t)
				shell(t, dir, repository)
				shell(t, dir, "git tag aaaaaaaaaaaaaaaa; git pack-refs --all")
				path := filepath.Join(dir, tc.path)
				s := serving(t, dir)
				armed(t, s)
				since := settle()

				fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
				must(t, err)
				b, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
				must(t, err)
				pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
				must(t, err)
				must(t, unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(fd), nil, 0))
				unix.Close(fd)
				if bytes.IndexByte(b, 0xff) == 0 { // on tmpfs the page is mapped from here on
					t.Fatal("the file starts with 0xff")
				}
				if again {
					for range 2 { // the page stays dirty from here on
						b[0] ^= 1
					}
					if a, got := ask(t, s, OpChanged, since); len(got) > 0 || a.Armed {
						t.Errorf("%+v", a)
					}
				}
				tc.evil(b)
				must(t, unix.Munmap(b))
				if a, got := ask(t, s, OpChanged, since); !slices.Equal(got, []string{tc.path}) || a.Armed {
					t.Errorf("%+v, %q", a, got)
				}
				if a, got := ask(t, s, OpChanged, since); len(got) > 0 || a.Armed {
					t.Errorf("reported again: %+v, %q", a, got)
				}
				unix.Close(pair[0])
				unix.Close(pair[1])
				armed(t, s)
			})
		}
	}
}

// TestContentNotWatched: without watches, each pass reads the content.
func TestContentNotWatched(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("git"))
	dir := memoryDir(t)
	shell(t, dir, repository)
	s := scanner(t, dir, Bounds{})
	baseline(t, s)
	since := settle()
	fd, err := unix.Open(filepath.Join(dir, ".git/index"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(t, err)
	b, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	must(t, err)
	unix.Close(fd)
	b[12+40+20] |= assumeValid >> 8
	must(t, unix.Munmap(b))
	if rep := changed(t, s, since); !slices.Equal(rep.Paths, []string{".git/index"}) {
		t.Errorf("%q", rep.Paths)
	}
	if rep := changed(t, s, since); len(rep.Paths) > 0 {
		t.Errorf("reported again: %q", rep.Paths)
	}
}
