package scan

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds on the protected paths. Each is a mount of the job's.
const (
	// MaxKept is the maximum number of paths.
	MaxKept = 1024
	// MaxKeptBytes is the maximum size of the encoded list.
	MaxKeptBytes = 56 << 10

	maxKeptPath = 4000 // bytes of one path: PATH_MAX less some
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

var (
	// ErrTooMany is returned by [Scanner.Keep] when a list would be longer than MaxKept or MaxKeptBytes, or when the last pass
	// reached one of the Bounds.
	ErrTooMany = errors.New("scan: more sensitive paths or directories than can be protected")

	errUndecided = errors.New("scan: where a sensitive link leads could not be found out")
)

// Keep lists the sensitive paths that existed at the last pass, at the root and in the repositories nested in it, for a job
// that must not change them: parent directories come first. Directories above a read-only path are pinned, or a job could
// replace them. With all, git directories are read-only as a whole; otherwise only the files that make git run code are, so
// that a job can commit, and files that merely hide changes from git are left to be reported by Changed.
//
// A symbolic link is read-only, and so are the links on its way and what it leads to in the repository: a file, or what is
// sensitive in a directory. A directory that cannot be read is read-only as a whole.
func (s *Scanner) Keep(all bool) ([]Kept, error) { return keepIn(all, s, nil) }

// keepIn lists the paths of the repository and of its common directory, if it has one. A common directory that is protected
// as a whole is mounted read-only, so its paths are not listed.
func keepIn(all bool, repo, common *Scanner) ([]Kept, error) {
	k := &keeping{all: all, holds: map[spot]Hold{}, linked: map[*node]bool{}}
	for _, s := range []*Scanner{repo, common} {
		if s == nil {
			continue
		}
		if err := k.scanner(s); err != nil {
			return nil, err
		}
	}
	return k.list()
}

// A keeping is one call of Keep.
type keeping struct {
	s      *Scanner
	all    bool
	holds  map[spot]Hold
	linked map[*node]bool // the directories behind links that are protected already
	place  int            // of the current directory
	path   []byte         // of the current directory in its place, with a trailing slash
	wrong  error
}

// scanner adds the paths of a scanner's tree, and those to which its links lead.
func (k *keeping) scanner(s *Scanner) error {
	switch {
	case s.root == nil:
		return ErrNoBaseline
	case s.partial:
		return ErrTooMany
	}
	k.s, k.place, k.path = s, s.own, nil
	k.start(s.root)
	return nil
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
			k.file(f, func(c *node) { k.treeDir(c, depth) })
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
			k.file(&n.files[i], k.belowGit)
		}
	}
	for _, c := range n.dirs {
		k.in(c.name, func() { k.belowGit(c) })
	}
}

// belowGit handles the current directory, which is in a git directory.
func (k *keeping) belowGit(c *node) {
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
}

// bareRoot protects the entries that make the root itself a git directory, in addition to those that tree protects.
func (k *keeping) bareRoot(root *node) {
	for i := range root.files {
		if root.files[i].presence {
			k.file(&root.files[i], nil)
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
func (k *keeping) keep(pinned bool) {
	if len(k.path) > 0 { // a place itself is not protected: that is what the workspace is for
		k.hold(spot{k.place, string(k.path[:len(k.path)-1])}, pinned)
	}
}

// file makes an entry of the current directory read-only. If it is a link, so are those on its way, and the file that it
// leads to; for a directory whose content is sensitive, dir is called with that as the current directory.
func (k *keeping) file(f *file, dir func(*node)) {
	at := spot{k.place, string(k.path) + f.name}
	k.hold(at, true)
	for _, l := range f.links() {
		k.link(l, at, dir)
	}
}

// link makes what a link at a spot leads to read-only, see file.
func (k *keeping) link(l *link, at spot, dir func(*node)) {
	y := &l.way
	for _, on := range y.links {
		k.hold(on, true)
	}
	switch {
	case y.end == undecided, y.end == closed && y.at.path == "":
		k.wrong = errUndecided
	case y.end == closed, y.end == arrived && !y.st.is(unix.S_IFDIR):
		k.hold(y.at, true)
	}
	key, ok := k.s.leads(l, at)
	c := k.s.linked[key]
	if !ok || c == nil || dir == nil || k.linked[c] {
		return
	}
	k.linked[c] = true
	place, path := k.place, k.path
	k.place, k.path = y.at.place, nil
	if y.at.path != "" {
		k.path = []byte(y.at.path + "/")
	}
	dir(c)
	k.place, k.path = place, path
}

// links protects what is behind the links in a directory that is sensitive as a whole.
func (k *keeping) links(n *node) {
	for i := range n.files {
		k.file(&n.files[i], func(c *node) {
			k.keep(true)
			k.links(c)
		})
	}
	for _, c := range n.dirs {
		k.in(c.name, func() { k.links(c) })
	}
}

func (k *keeping) hold(at spot, pinned bool) {
	k.holds[at] = ReadOnly
	for pinned {
		if at, _ = at.split(); at.path == "" {
			return
		}
		if _, there := k.holds[at]; !there { // otherwise already read-only, or pinned for another path
			k.holds[at] = Pinned
		}
	}
}

// list returns the protected paths in order, without those inside a read-only directory.
func (k *keeping) list() ([]Kept, error) {
	if k.wrong != nil {
		return nil, k.wrong
	}
	var list []Kept
	size := 0
	for at, hold := range k.holds {
		if k.covered(at) || k.all && at.place == commonPlace {
			continue
		}
		if at.place == commonPlace {
			hold = hold.common()
		}
		list = append(list, Kept{hold, at.path})
		size += len(at.path) + 2
		if len(at.path) > maxKeptPath {
			return nil, ErrTooMany
		}
	}
	if len(list) > MaxKept || size > MaxKeptBytes {
		return nil, ErrTooMany
	}
	slices.SortFunc(list, func(a, b Kept) int { return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Hold, b.Hold)) })
	return list, nil
}

func (k *keeping) covered(at spot) bool {
	for {
		if at, _ = at.split(); at.path == "" {
			return false
		}
		if k.holds[at] == ReadOnly {
			return true
		}
	}
}
