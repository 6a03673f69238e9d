package layer

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/changes/stream"
	"corral/isolate/scan"
	"corral/job"
)

// A pair is one directory in both trees.
type pair struct {
	path         string // "" is the root
	depth        int
	upper, lower *dir // one of them may be nil
	hidden       bool // what is in lower and not in upper is deleted
	fresh        bool // it came into the place of something else during this walk
	gone         bool // its own deletion stands for those of all in it
	rules        scan.Rules
	use          use // of who applies
}

func (p *pair) join(name string) string {
	if p.path == "" {
		return name
	}
	return p.path + "/" + name
}

// A change is one name that is looked at.
type change struct {
	at         *pair
	name, path string
	u, l       *unix.Stat_t // in the layer and in the repository; nil: not there. A whiteout is not there
	kind       job.ChangeKind
	link, old  string // what links lead to
	sensitive  bool
	below      scan.Rules
	bare       func() bool // the directory it is in is a bare repository's
	dir        *dir        // u, if it is a directory that could be opened
	marks      marks
	barred     stream.Reason // why u cannot be read, or 0
	replaced   bool          // the visitor has put u, a directory, into the place of something else
	made       *unix.Stat_t  // u, if the visitor has made it in the repository
}

// A class says what has to be done for a change, which is known before it is looked at closely.
type class uint8

const (
	adds class = iota
	alters
	deletes
)

func (c *change) class() class {
	switch {
	case c.u == nil:
		return deletes
	case c.l == nil:
		return adds
	}
	return alters
}

// A visitor sees what differs, directories before what is in them.
type visitor interface {
	// enter comes before what is in a directory.
	enter(p *pair) error
	// wants says whether the visitor is to see the change at all; it has no kind yet.
	wants(c *change) bool
	// visit sees a change. Of a directory that is the same in both trees, kind is "". What is in a directory of the layer is
	// visited then if it says so.
	visit(c *change) (descend bool, err error)
	// leave comes after what is in a directory, if it was entered, on every way out.
	leave(p *pair) error
	// closed is about a directory of the repository that cannot be opened, so that what is in it is not visited.
	closed(c *change) error
}

// A walk is one pass over both trees.
type walk struct {
	ctx        context.Context
	bounds     Bounds
	visitor    visitor
	paths      []string
	met        []bool // which of paths something was found at
	compare    bool   // contents decide what is a difference
	expand     bool   // what was below a directory that is gone is visited, too
	deadline   time.Time
	entries    int
	bytes      int64
	tick       int
	late       bool
	incomplete bool
	sum        *digest // of what is seen; nil: none is made
}

func newWalk(ctx context.Context, b Bounds, paths []string, v visitor) *walk {
	return &walk{
		ctx: ctx, bounds: b, visitor: v, paths: paths, met: make([]bool, len(paths)),
		deadline: time.Now().Add(b.Time), entries: b.Entries, bytes: b.Bytes,
	}
}

// run walks from the roots.
func (w *walk) run(t *trees) error { return w.pair(t.root()) }

// over says whether the pass is at its end before all was seen. The clock is looked at now and then.
func (w *walk) over() bool {
	if w.tick++; !w.late && w.tick%64 == 0 {
		w.late = time.Now().After(w.deadline) || w.ctx.Err() != nil
	}
	w.incomplete = w.incomplete || w.late
	return w.late
}

// names reads a directory, within what is left of the bounds.
func (w *walk) names(d *dir) []string {
	names, whole, err := d.names(w.entries)
	w.entries -= len(names)
	w.incomplete = w.incomplete || !whole || err != nil
	return names
}

// pair walks one directory.
func (w *walk) pair(p *pair) error {
	if p.depth > w.bounds.Depth {
		w.incomplete = true
		return nil
	}
	names := w.names(p.upper)
	bare := w.bareness(p, names)
	if p.hidden {
		names = append(names, w.names(p.lower)...)
		slices.Sort(names)
		names = slices.Compact(names)
	}
	if err := w.visitor.enter(p); err != nil {
		return err
	}
	var err error
	for _, name := range names {
		if err != nil || w.over() {
			break
		}
		if reach := w.reach(p.join(name)); reach != nowhere && !isTemp(name) {
			err = w.name(p, name, reach, bare)
		}
	}
	return errors.Join(err, w.visitor.leave(p))
}

// bareness says whether git would take the directory for a repository, before the changes or after them.
func (w *walk) bareness(p *pair, upper []string) func() bool {
	known, bare := false, false
	return func() bool {
		if !known {
			known, bare = true, p.rules.Bare(append(w.names(p.lower), upper...))
		}
		return bare
	}
}

// name looks at one name.
func (w *walk) name(p *pair, name string, r reach, bare func() bool) error {
	c := &change{at: p, name: name, path: p.join(name), bare: bare}
	if !w.look(c) {
		return nil
	}
	defer func() { c.dir.close() }()
	c.sensitive, c.below = p.rules.Entry(name, isDir(c.u) || c.u == nil && isDir(c.l), bare)
	c.sensitive = c.sensitive || w.hides(c)
	gone := isDir(c.l) && !isDir(c.u) // a directory goes away
	if gone && (w.expand || r == partly) {
		if err := w.goneBelow(c, r == wholly); err != nil {
			return err
		}
	}
	if r == partly && (gone || !isDir(c.u)) {
		return nil
	}
	descend := isDir(c.u) && isDir(c.l)
	if w.visitor.wants(c) {
		w.classify(c)
		if r == partly && c.kind == job.ChangeMode {
			c.kind = "" // it is about what is below
		}
		w.digest(c)
		if c.kind != "" {
			w.meet(c.path)
		}
		if c.kind != "" || isDir(c.u) {
			var err error
			if descend, err = w.visitor.visit(c); err != nil {
				return err
			}
		}
	}
	if descend && c.dir != nil {
		return w.descend(c)
	}
	return nil
}

// hides says whether a change of git's own files hides something from git that was not hidden before.
func (w *walk) hides(c *change) bool {
	h := c.at.rules.Hides(c.name, c.bare)
	if !h.Any() || c.u == nil || isDir(c.u) {
		return false
	}
	open := func(d *dir, st *unix.Stat_t) *os.File {
		if !isFile(st) {
			return nil
		}
		fd, _, err := d.file(c.name)
		if err != nil {
			return nil
		}
		return os.NewFile(uintptr(fd), c.name)
	}
	now := open(c.at.upper, c.u)
	if now == nil { // it cannot be read, or is a link
		return true
	}
	defer now.Close()
	before := open(c.at.lower, c.l)
	if before != nil {
		defer before.Close()
	}
	return h.HidesMore(before, now, w.over)
}

// look finds out what is at a name in both trees. It returns false if there is no difference to think of.
func (w *walk) look(c *change) bool {
	var err error
	if c.at.upper != nil {
		if c.u, err = c.at.upper.lstat(c.name); err != nil {
			w.incomplete = true
			return false
		}
	}
	whiteout := isWhiteout(c.u)
	if c.at.lower != nil {
		if c.l, err = c.at.lower.lstat(c.name); err != nil {
			w.incomplete = true
			return false
		}
	}
	if whiteout || c.u == nil {
		c.u = nil
		return c.l != nil && (whiteout || c.at.hidden)
	}
	if isDir(c.u) {
		w.openUpper(c)
	}
	return true
}

// openUpper opens a directory of the layer and reads its marks.
func (w *walk) openUpper(c *change) {
	var err error
	if c.dir, err = c.at.upper.open(c.name); err == nil {
		c.marks, err = readMarks(c.dir.fd)
	}
	if w.bar(c, err) {
		c.dir.close()
		c.dir = nil
	}
}

// bar notes that a change cannot be looked into whose marks could not be read, for err, or are not known. It says whether
// that is so.
func (w *walk) bar(c *change, err error) bool {
	switch {
	case err != nil:
		c.barred = stream.NoAccess
	case c.marks.unknown:
		c.barred = stream.Unknown
	default:
		return false
	}
	w.incomplete = true
	return true
}

// descend walks the directory of the layer and what the repository has in its place.
func (w *walk) descend(c *change) error {
	below := &pair{
		path: c.path, depth: c.at.depth + 1, upper: c.dir, rules: c.below,
		hidden: c.at.hidden || c.marks.opaque,
		fresh:  c.at.fresh || c.replaced,
		use:    use{made: c.made},
	}
	if c.at.lower != nil {
		lower, err := c.at.lower.open(c.name)
		switch {
		case err == nil:
			below.lower = lower
			defer lower.close()
		case !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP):
			w.incomplete = true
			return w.visitor.closed(c)
		}
	}
	return w.pair(below)
}

// goneBelow walks a directory of the repository that is not in the layer any more. whole says that it is looked at itself, too.
func (w *walk) goneBelow(c *change, whole bool) error {
	lower, err := c.at.lower.open(c.name)
	if err != nil {
		w.incomplete = true
		return w.visitor.closed(c)
	}
	defer lower.close()
	return w.pair(&pair{path: c.path, depth: c.at.depth + 1, lower: lower, hidden: true, gone: whole || c.at.gone, rules: c.rulesBelow()})
}

// rulesBelow returns the rules for what the repository has below a directory that goes away.
func (c *change) rulesBelow() scan.Rules {
	_, below := c.at.rules.Entry(c.name, true, c.bare)
	return below
}

// reach says how far the paths that were asked for are about one path.
type reach uint8

const (
	nowhere reach = iota
	partly        // about something below it
	wholly
)

func (w *walk) reach(path string) reach {
	if len(w.paths) == 0 {
		return wholly
	}
	r := nowhere
	for _, p := range w.paths {
		switch {
		case p == path, strings.HasPrefix(path, p) && path[len(p)] == '/':
			return wholly
		case strings.HasPrefix(p, path) && p[len(path)] == '/':
			r = partly
		}
	}
	return r
}

// meet notes that there is something at a path that was asked for.
func (w *walk) meet(path string) {
	for i, p := range w.paths {
		if p == path || strings.HasPrefix(path, p) && path[len(p)] == '/' {
			w.met[i] = true
		}
	}
}

// unmatched returns a path that was asked for in vain.
func (w *walk) unmatched() (string, bool) {
	if i := slices.Index(w.met, false); i >= 0 {
		return w.paths[i], true
	}
	return "", false
}
