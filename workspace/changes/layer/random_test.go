package layer

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// A chaos edits a tree at random. Its edits may fail.
type chaos struct {
	*rand.Rand
	root string
}

// There are few names, so that paths collide.
var names = []string{"a", "b", "c", "d.txt", ".git", "hooks", "x y", "\xfe", "HEAD", "n\nl"}

func (c chaos) path() string {
	parts := []string{c.root}
	for range 1 + c.IntN(4) {
		parts = append(parts, names[c.IntN(len(names))])
	}
	return filepath.Join(parts...)
}

func (c chaos) content() []byte {
	n := []int{0, 1, 10, 100, 5000, 70_000}[c.IntN(6)]
	return []byte(strings.Repeat(string(rune('a'+c.IntN(3))), n))
}

// step makes one edit: it replaces, overwrites, extends, moves, links or removes a file.
func (c chaos) step() {
	p, q := c.path(), c.path()
	modes := []uint32{0o644, 0o755, 0o600, 0o700, 0o777, 0o444}
	switch c.IntN(14) {
	case 0, 1, 2:
		_ = os.MkdirAll(filepath.Dir(p), 0o755)
		_ = os.WriteFile(p, c.content(), 0o644)
	case 3:
		if f, err := os.OpenFile(p, os.O_WRONLY|os.O_APPEND, 0); err == nil {
			_, _ = f.Write(c.content())
			f.Close()
		}
	case 4:
		_ = os.MkdirAll(p, 0o755)
	case 5:
		_ = os.RemoveAll(p)
	case 6:
		_ = os.Remove(p)
	case 7, 8:
		_ = os.Rename(p, q)
	case 9:
		_ = os.Symlink(filepath.Base(q), p)
	case 10:
		_ = os.Link(p, q)
	case 11:
		if info, err := os.Lstat(p); err == nil && info.Mode()&os.ModeSymlink == 0 {
			_ = unix.Chmod(p, modes[c.IntN(len(modes))])
		}
	case 12:
		_ = os.Truncate(p, int64(c.IntN(100)))
	case 13:
		_ = os.RemoveAll(p)
		_ = os.MkdirAll(p, 0o755)
	}
}

// TestRandom edits random trees at random, and checks that an apply, in one run or in several, gives the repository
// the files that jobs see.
func TestRandom(t *testing.T) {
	for seed := range uint64(sandboxtest.Scale(60)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := chaos{Rand: rand.New(rand.NewPCG(seed, 1))}
			w := newWorld(t, func(repo string) {
				c.root = repo
				for range 150 {
					c.step()
				}
			})
			c.root = w.merged
			for range 1 + c.IntN(150) {
				c.step()
			}
			if seed%3 == 0 {
				all := w.run("list").entries
				// Moved files have at least one name at any time, except if both are names of the same file.
				for range 3 {
					if len(all) > 0 {
						e := all[c.IntN(len(all))]
						if e.OldType == "" {
							w.run("apply", e.Path)
						}
					}
				}
				past(t)
			}
			w.applied()
		})
	}
}

// TestTimes checks that applied files have the times set by jobs, and that other files keep theirs.
func TestTimes(t *testing.T) {
	w := newWorld(t, project(t))
	m, r := at{t, w.merged}, at{t, w.repo}
	m.write("n/f", "x")
	m.write("b", "2")
	m.link("b", "n/l")
	m.write("d/x", "x\n")
	when := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	for _, name := range []string{"n/f", "b", "n/l", "d/x", "n"} {
		ts := []unix.Timespec{unix.NsecToTimespec(when.UnixNano()), unix.NsecToTimespec(when.UnixNano())}
		check(t, unix.UtimesNanoAt(unix.AT_FDCWD, m.path(name), ts, unix.AT_SYMLINK_NOFOLLOW))
	}
	before := mtime(t, r.path("d/x"))
	w.applied()
	for _, name := range []string{"n/f", "b", "n/l", "n"} {
		if got := mtime(t, r.path(name)); !got.Equal(when) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := mtime(t, r.path("d/x")); !got.Equal(before) {
		t.Errorf("d/x: %v, was %v", got, before)
	}
}

func mtime(t *testing.T, path string) time.Time {
	info, err := os.Lstat(path)
	check(t, err)
	return info.ModTime()
}

// TestSparse checks that holes are preserved, and not read when files are compared.
func TestSparse(t *testing.T) {
	const size = 64 << 30
	holes := func(path string, at int64) {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		check(t, err)
		_, err = f.WriteAt([]byte("data"), at)
		check(t, err, f.Truncate(size), f.Close())
	}
	w := newWorld(t, func(repo string) { holes(filepath.Join(repo, "old"), 5<<30) })
	check(t, os.Remove(filepath.Join(w.merged, "old")))
	holes(filepath.Join(w.merged, "old"), 5<<30)
	holes(filepath.Join(w.merged, "new"), 7<<30)
	all := w.run("apply")
	if got := all.lines(); !slices.Equal(got, []string{"added file new"}) || all.sum.Failed != "" {
		t.Fatalf("%q %+v", got, all.sum)
	}
	var st unix.Stat_t
	check(t, unix.Stat(filepath.Join(w.repo, "new"), &st))
	if st.Size != size || st.Blocks > 2048 {
		t.Errorf("%d bytes in %d blocks", st.Size, st.Blocks)
	}
	f, err := os.Open(filepath.Join(w.repo, "new"))
	check(t, err)
	defer f.Close()
	b := make([]byte, 6)
	_, err = f.ReadAt(b, 7<<30-1)
	if check(t, err); string(b) != "\x00data\x00" {
		t.Errorf("%q", b)
	}
	if left := w.run("list"); len(left.entries) > 0 {
		t.Errorf("left over: %q", left.lines())
	}
}

// TestLarge checks directories with very many names.
func TestLarge(t *testing.T) {
	n := sandboxtest.Scale(4_000)
	w := newWorld(t, func(repo string) {
		for i := range n {
			at{t, repo}.write(fmt.Sprintf("gone/%d", i), "")
		}
	})
	m := at{t, w.merged}
	m.remove("gone")
	m.mkdir("new")
	for i := range n {
		check(t, os.WriteFile(m.path(fmt.Sprintf("new/%d", i)), nil, 0o644))
	}
	all := w.run("list", "-most=10")
	if all.sum.Entries != int64(n)+2 || all.sum.More != int64(n)-8 || all.sum.Incomplete {
		t.Errorf("%+v", all.sum)
	}
	if e := all.entries[0]; e.Path != "gone" || e.Below != int64(n) {
		t.Errorf("%+v", e)
	}
	if all := w.run("apply"); all.sum.Applied != int64(n)+2 {
		t.Errorf("%+v", all.sum)
	}
	same(t, tree(t, w.repo), tree(t, w.merged))
}
