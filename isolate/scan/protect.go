package scan

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// Bounds of what a job finds kept. Each path is a mount of the job's.
const (
	// MaxKept is how many paths there can be.
	MaxKept = 1024
	// MaxKeptBytes is how long their list can be, as it is sent.
	MaxKeptBytes = 56 << 10

	maxKeptPath = 4000 // bytes of one path: PATH_MAX less some
	keepPasses  = 3    // over a tree that one pass does not get through
)

// A Hold says what is done to a path before a job starts.
type Hold byte

const (
	// Pinned is a directory that stays in its place, so that no other can take it: what is in it can be written.
	Pinned Hold = 'p'
	// ReadOnly is a file or a directory that stays as it is.
	ReadOnly Hold = 'r'
)

// common is the same for a path of the common directory, relative to that.
func (h Hold) common() Hold { return h - 'a' + 'A' }

// A Kept is one path, relative to the root.
type Kept struct {
	Hold Hold
	Path string
}

// ErrTooMany is returned by [Scanner.Keep] when a list would be longer than MaxKept, MaxKeptBytes or the Bounds allow.
var ErrTooMany = errors.New("scan: more sensitive paths, or directories, than can be kept")

// Keep lists the sensitive paths that are there now, at the root and in the repositories nested in it, for a job that is to
// leave them alone: what is above comes first. Directories above a path that is read-only are pinned, or a job could put
// others in their place. With all, git directories are read-only as a whole; else what makes git run code is, and a job can
// commit; what only hides changes from git is reported then.
//
// A symbolic link stays as it is, and so does a file of the repository that it leads to. A directory that cannot be looked
// into is read-only as a whole.
//
// It walks as Changed does, and what it remembers is its own: a change that it meets is still reported by Changed.
func (s *Scanner) Keep(all bool) ([]Kept, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.fd < 0:
		return nil, ErrClosed
	case s.root == nil:
		return nil, ErrNoBaseline
	}
	if s.keeper == nil {
		s.keeper = s.twin()
	}
	if err := s.keeper.refresh(); err != nil {
		return nil, err
	}
	k := &keeping{s: s, all: all, holds: map[string]Hold{}}
	k.start(s.keeper.root)
	return k.list()
}

// twin returns a scanner of the same tree that remembers what s does. It has no descriptor of its own.
func (s *Scanner) twin() *Scanner {
	return &Scanner{
		fd: s.fd, bounds: s.bounds, exact: s.exact, tree: s.tree, root: s.root.copy(), nodes: s.nodes, tracked: s.tracked,
		last: s.last, owed: s.owed, buf: s.buf, seed: s.seed, lists: true,
	}
}

func (n *node) copy() *node {
	c := *n
	c.files = slices.Clone(n.files)
	c.dirs = make([]*node, len(n.dirs))
	for i, d := range n.dirs {
		c.dirs[i] = d.copy()
	}
	return &c
}

// refresh brings what is remembered up to date. What goes away meanwhile, or is moved, is somebody else's to answer for.
func (s *Scanner) refresh() error {
	for range keepPasses {
		now := time.Now()
		w := s.newWalk(now, now)
		w.quiet = true
		if _, err := w.run(); err != nil {
			return err
		}
		if w.crowded {
			return ErrTooMany
		}
		if !w.full && !w.late {
			return nil
		}
	}
	return ErrTooMany
}

// A keeping is the making of one list.
type keeping struct {
	s     *Scanner
	all   bool
	holds map[string]Hold
	path  []byte // of the directory at hand, with a slash at its end
	wrong error
}

func (k *keeping) start(root *node) {
	if !root.zone.tree {
		k.gitDir(root)
		return
	}
	if k.all && root.bare {
		k.bareRoot(root)
	}
	k.tree(root, 0)
}

// outside is the depth of a directory that is not of a repository's root: nothing in it is kept but what is nested.
const outside = -1

// tree is about an ordinary directory. depth says how far below a repository's root it is, if all on the way is named by
// rules.
func (k *keeping) tree(n *node, depth int) {
	if n.repository() {
		depth = 0
	}
	for i := range n.files {
		f := &n.files[i]
		if !f.presence && !hiding[f.row] && k.fits(f.row, depth) {
			k.file(f)
		}
	}
	for _, c := range n.dirs {
		k.in(c.name, func() { k.treeDir(c, depth) })
	}
}

// treeDir is about the directory at hand, whose parent is of depth.
func (k *keeping) treeDir(c *node, depth int) {
	below := outside
	if depth != outside && c.listed {
		below = depth + 1
	}
	switch {
	case c.unread:
		k.keep(false)
	case c.whole() && k.fits(c.row, depth), k.all && (c.bare || c.isGitDir()):
		k.keep(true)
		k.links(c)
	case c.whole():
		k.tree(c, outside)
	case c.isGitDir():
		k.gitDir(c)
	default:
		k.tree(c, below)
	}
}

// fits says whether the path of a rule is one below a repository's root, for an entry of a directory of depth. A directory
// on the way of a rule counts, should it be a link.
func (k *keeping) fits(row int16, depth int) bool {
	if row == noRow {
		return false
	}
	if Table[row].In != Tree {
		return true // of a look-alike
	}
	return depth != outside && strings.Count(strings.TrimSuffix(Table[row].Path, "/"), "/") >= depth
}

// gitDir is about a git directory: all that is named in it is kept.
func (k *keeping) gitDir(n *node) {
	for i := range n.files {
		if !hiding[n.files[i].row] {
			k.file(&n.files[i])
		}
	}
	for _, c := range n.dirs {
		k.in(c.name, func() {
			switch {
			case c.unread:
				k.keep(false)
			case hiding[c.row] && c.whole():
			case c.whole():
				k.keep(true)
				k.links(c)
			default:
				k.gitDir(c)
			}
		})
	}
}

// bareRoot keeps what makes the root itself a git directory, beside what tree does.
func (k *keeping) bareRoot(root *node) {
	for i := range root.files {
		if root.files[i].presence {
			k.file(&root.files[i])
		}
	}
	for _, c := range root.dirs {
		if root.zone.lookup([]byte(c.name)).mark != 0 {
			k.in(c.name, func() { k.keep(true) })
		}
	}
}

// repository says whether a directory of the tree is the root of a repository.
func (n *node) repository() bool {
	isGit := func(row int16) bool { return row != noRow && Table[row].In == Tree && Table[row].Path == ".git" }
	return n.bare || slices.ContainsFunc(n.dirs, func(c *node) bool { return c.isGitDir() }) ||
		slices.ContainsFunc(n.files, func(f file) bool { return isGit(f.row) })
}

// isGitDir says whether a directory below one of the tree is a git directory by its name.
func (n *node) isGitDir() bool {
	return n.track && !n.zone.tree && n.zone.all == noRow && n.row != noRow && Table[n.row].Path == ".git"
}

// whole says whether all that is in the directory is sensitive.
func (n *node) whole() bool { return n.track && n.zone.all != noRow && n.zone.rest == n.zone }

// in does something in a directory of the one at hand.
func (k *keeping) in(name string, do func()) {
	end := len(k.path)
	k.path = append(append(k.path, name...), '/')
	do()
	k.path = k.path[:end]
}

// keep makes the directory at hand read-only, and pins those above.
func (k *keeping) keep(pinned bool) { k.hold(string(k.path[:len(k.path)-1]), pinned) }

// file makes an entry of the directory at hand read-only and, if it is a link, what it leads to.
func (k *keeping) file(f *file) {
	path := string(k.path) + f.name
	k.hold(path, true)
	dir := strings.HasSuffix(Table[f.row].Path, "/")
	if f.st.to != (ident{}) {
		k.target(path, dir)
	}
}

// links keeps the files to which links lead that lie in a directory that is sensitive as a whole.
func (k *keeping) links(n *node) {
	for i := range n.files {
		if f := &n.files[i]; f.st.to != (ident{}) {
			k.target(string(k.path)+f.name, false)
		}
	}
	for _, c := range n.dirs {
		k.in(c.name, func() { k.links(c) })
	}
}

// target keeps what a link leads to: a file, or with dir a directory. What is outside of the root nobody can write.
func (k *keeping) target(link string, dir bool) {
	path, isDir, err := resolve(k.s.fd, link)
	switch {
	case err != nil:
		k.wrong = err
	case path == "" || path == "." || isDir && !dir:
	default:
		k.hold(path, true)
	}
}

func (k *keeping) hold(path string, pinned bool) {
	k.holds[path] = ReadOnly
	for i := len(path) - 1; pinned && i > 0; i-- {
		if path[i] != '/' {
			continue
		}
		if _, there := k.holds[path[:i]]; there {
			continue // it is read-only, or pinned for another
		}
		k.holds[path[:i]] = Pinned
	}
}

// list sorts what is kept, without that which lies in a directory that is read-only.
func (k *keeping) list() ([]Kept, error) {
	if k.wrong != nil {
		return nil, k.wrong
	}
	var list []Kept
	size := 0
	for path, hold := range k.holds {
		if k.covered(path) {
			continue
		}
		list = append(list, Kept{hold, path})
		size += len(path) + 2
		if len(path) > maxKeptPath {
			return nil, ErrTooMany
		}
	}
	if len(list) > MaxKept || size > MaxKeptBytes {
		return nil, ErrTooMany
	}
	slices.SortFunc(list, func(a, b Kept) int { return strings.Compare(a.Path, b.Path) })
	return list, nil
}

func (k *keeping) covered(path string) bool {
	for i := range len(path) {
		if path[i] == '/' && k.holds[path[:i]] == ReadOnly {
			return true
		}
	}
	return false
}
