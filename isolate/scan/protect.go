package scan

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// Bounds on the protected paths. Each is a mount of the job's.
const (
	// MaxKept is the maximum number of paths.
	MaxKept = 1024
	// MaxKeptBytes is the maximum size of the encoded list.
	MaxKeptBytes = 56 << 10

	maxKeptPath = 4000 // bytes of one path: PATH_MAX less some
	keepPasses  = 3    // maximum passes over a tree that is too large for one
)

// A Hold is how a path is protected before a job starts.
type Hold byte

const (
	// Pinned is for a directory that cannot be moved or replaced; the files in it can be written.
	Pinned Hold = 'p'
	// ReadOnly is for a file or a directory that cannot be changed.
	ReadOnly Hold = 'r'
)

// common returns the Hold for a path relative to the common directory.
func (h Hold) common() Hold { return h - 'a' + 'A' }

// A Kept is one protected path, relative to the root.
type Kept struct {
	Hold Hold
	Path string
}

// ErrTooMany is returned by [Scanner.Keep] when a list would be longer than MaxKept, MaxKeptBytes or the Bounds allow.
var ErrTooMany = errors.New("scan: more sensitive paths or directories than can be protected")

// Keep lists the sensitive paths that exist now, at the root and in the repositories nested in it, for a job that must
// not change them: parent directories come first. Directories above a read-only path are pinned, or a job could replace
// them. With all, git directories are read-only as a whole; otherwise only the files that make git run code are, so that
// a job can commit, and files that merely hide changes from git are left to be reported by Changed.
//
// A symbolic link is read-only, and so is a file of the repository that it leads to. A directory that cannot be read is
// read-only as a whole.
//
// Keep walks as Changed does but has its own memory: a change that it encounters is still reported by Changed.
func (s *Scanner) Keep(all bool) ([]Kept, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.root == nil {
		return nil, ErrNoBaseline
	}
	if s.keeper == nil {
		s.keeper = s.clone()
	}
	if err := s.keeper.refresh(); err != nil {
		return nil, err
	}
	k := &keeping{s: s, all: all, holds: map[string]Hold{}}
	k.start(s.keeper.root)
	return k.list()
}

// clone returns a scanner of the same tree with a copy of what s remembers. It shares s's descriptor.
func (s *Scanner) clone() *Scanner {
	return &Scanner{
		fd: s.fd, bounds: s.bounds, exact: s.exact, tree: s.tree, root: s.root.copy(), nodes: s.nodes, tracked: s.tracked,
		last: s.last, pendingSince: s.pendingSince, buf: s.buf, seed: s.seed, lists: true,
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

// refresh updates what is remembered. Paths that disappear or move meanwhile are the responsibility of the process that
// does that.
func (s *Scanner) refresh() error {
	for range keepPasses {
		now := time.Now()
		w := s.newWalk(now, now)
		w.silent = true
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

// A keeping is one call of Keep.
type keeping struct {
	s     *Scanner
	all   bool
	holds map[string]Hold
	path  []byte // of the current directory, with a trailing slash
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

// outside is the depth of a directory that does not count from a repository's root: only repositories nested in it are
// protected.
const outside = -1

// tree handles an ordinary directory. depth is the number of levels below a repository's root if rules name every
// directory on the way, otherwise outside.
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

// treeDir handles the current directory, whose parent has the given depth.
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

// fits reports whether a rule's path, taken from a repository's root, reaches an entry of a directory of this depth. A directory
// that a rule's path passes through counts, as it may be a link.
func (k *keeping) fits(row int16, depth int) bool {
	if row == noRow {
		return false
	}
	if Table[row].In != Tree {
		return true // a rule of a look-alike
	}
	return depth != outside && strings.Count(strings.TrimSuffix(Table[row].Path, "/"), "/") >= depth
}

// gitDir handles a git directory: every entry named by a rule is protected.
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

// bareRoot protects the entries that make the root itself a git directory, in addition to those that tree protects.
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

// repository reports whether an ordinary directory is the root of a repository.
func (n *node) repository() bool {
	isGit := func(row int16) bool { return row != noRow && Table[row].In == Tree && Table[row].Path == ".git" }
	return n.bare || slices.ContainsFunc(n.dirs, func(c *node) bool { return c.isGitDir() }) ||
		slices.ContainsFunc(n.files, func(f file) bool { return isGit(f.row) })
}

// isGitDir reports whether a subdirectory of an ordinary directory is a git directory by its name.
func (n *node) isGitDir() bool {
	return n.track && !n.zone.tree && n.zone.all == noRow && n.row != noRow && Table[n.row].Path == ".git"
}

// whole reports whether everything in the directory is sensitive.
func (n *node) whole() bool { return n.track && n.zone.all != noRow && n.zone.rest == n.zone }

// in calls do with the directory name of the current directory as the current one.
func (k *keeping) in(name string, do func()) {
	end := len(k.path)
	k.path = append(append(k.path, name...), '/')
	do()
	k.path = k.path[:end]
}

// keep makes the current directory read-only and, with pinned, pins those above.
func (k *keeping) keep(pinned bool) { k.hold(string(k.path[:len(k.path)-1]), pinned) }

// file makes an entry of the current directory read-only and, if it is a link, its target too.
func (k *keeping) file(f *file) {
	path := string(k.path) + f.name
	k.hold(path, true)
	dir := strings.HasSuffix(Table[f.row].Path, "/")
	if f.st.to != (ident{}) {
		k.target(path, dir)
	}
}

// links protects the targets of links in a directory that is sensitive as a whole.
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

// target protects the target of a link: a file, or with dir a directory. Targets outside of the root cannot be written by
// jobs.
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
			continue // already read-only, or pinned for another path
		}
		k.holds[path[:i]] = Pinned
	}
}

// list returns the protected paths in order, without those inside a read-only directory.
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
