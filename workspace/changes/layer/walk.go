package layer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/job"
	"corral/workspace/changes/stream"
)

// A walk is one pass over both trees.
type walk struct {
	ctx        context.Context
	bounds     Bounds
	visitor    visitor
	paths      []string
	met        []bool // for each of paths, whether a change was found there
	compare    bool   // compare contents of files
	expand     bool   // also visit the contents of deleted directories
	deadline   time.Time
	entries    int
	bytes      int64
	tick       int
	late       bool
	incomplete bool
	missed     string  // the first path that was not examined, "." for the root; "" if the time was over
	short      bool    // incomplete, and not only because permissions or marks of single paths keep them from being read
	sum        *digest // nil unless a digest was requested
}

func newWalk(ctx context.Context, b Bounds, paths []string, v visitor) *walk {
	return &walk{
		ctx: ctx, bounds: b, visitor: v, paths: paths, met: make([]bool, len(paths)),
		deadline: time.Now().Add(b.Time), entries: b.Entries, bytes: b.Bytes,
	}
}

// run walks both trees from their roots.
func (w *walk) run(t *trees) error { return w.pair(t.root()) }

// over reports whether the deadline has passed or the context is done. It checks only on every 64th call.
func (w *walk) over() bool {
	if w.tick++; !w.late && w.tick%64 == 0 {
		w.late = time.Now().After(w.deadline) || w.ctx.Err() != nil
	}
	w.incomplete, w.short = w.incomplete || w.late, w.short || w.late
	return w.late
}

// miss records that a path was not examined. whole tells that it is more than a single path that cannot be read.
func (w *walk) miss(path string, whole bool) {
	w.incomplete, w.short = true, w.short || whole
	w.missed = cmp.Or(w.missed, path, ".")
}

// unexamined says why a walk is incomplete.
func (w *walk) unexamined() string {
	if w.missed == "" {
		return "the time was over before everything was examined"
	}
	return fmt.Sprintf("not everything could be examined: %q could not", w.missed)
}

// names reads a directory, whose path is for miss, within the remaining bound of entries.
func (w *walk) names(d *dir, path string) []string {
	names, whole, err := d.names(w.entries)
	w.entries -= len(names)
	if !whole || err != nil {
		w.miss(path, true)
	}
	return names
}

// pair walks one directory.
func (w *walk) pair(p *pair) error {
	if p.depth > w.bounds.Depth {
		w.miss(p.path, true)
		return nil
	}
	names := w.names(p.upper, p.path)
	bare := w.bareness(p, names)
	if p.hidden {
		names = append(names, w.names(p.lower, p.path)...)
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

// bareness returns a function that reports whether git would take the directory for a bare repository, before or
// after the changes.
func (w *walk) bareness(p *pair, upper []string) func() bool {
	known, bare := false, false
	return func() bool {
		if !known {
			known, bare = true, p.rules.Bare(append(w.names(p.lower, p.path), upper...))
		}
		return bare
	}
}

// name compares one name in both trees.
func (w *walk) name(p *pair, name string, r reach, bare func() bool) error {
	c := &change{at: p, name: name, path: p.join(name), bare: bare}
	if !w.look(c) {
		return nil
	}
	defer func() { c.dir.close() }()
	c.sensitive, c.below = p.rules.Entry(name, isDir(c.u) || c.u == nil && isDir(c.l), bare)
	gone := isDir(c.l) && !isDir(c.u) // a directory is deleted or replaced
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
		var err error
		if descend, err = w.visit(c, r); err != nil {
			return err
		}
	}
	if descend && c.dir != nil {
		return w.descend(c)
	}
	return nil
}

// visit classifies a change and has it visited, unless it is none. It reports whether to walk the directory.
func (w *walk) visit(c *change, r reach) (descend bool, err error) {
	w.classify(c)
	if r == partly && c.kind == job.ChangeMode {
		c.kind = "" // only paths below were requested
	}
	w.digest(c)
	if c.kind != "" {
		w.meet(c.path)
	}
	if c.kind == "" && !isDir(c.u) {
		return false, nil
	}
	return w.visitor.visit(c)
}

// look reads the metadata of a name in both trees. It returns false if there cannot be a difference.
func (w *walk) look(c *change) bool {
	var err error
	if c.at.upper != nil {
		if c.u, err = c.at.upper.lstat(c.name); err != nil {
			w.miss(c.path, true)
			return false
		}
	}
	whiteout := isWhiteout(c.u)
	if c.at.lower != nil {
		if c.l, err = c.at.lower.lstat(c.name); err != nil {
			w.miss(c.path, true)
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

// bar marks a change as one that cannot be applied if err, an error of reading its marks, is not nil or its marks are
// unknown. It reports whether that is so.
func (w *walk) bar(c *change, err error) bool {
	switch {
	case err != nil:
		c.barred = stream.NoAccess
	case c.marks.unknown:
		c.barred = stream.Unknown
	default:
		return false
	}
	w.miss(c.path, false)
	return true
}

// descend walks a directory of the layer and that of the repository at the same path.
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
			w.miss(c.path, false)
			return w.visitor.closed(c)
		}
	}
	return w.pair(below)
}

// goneBelow walks a directory of the repository that was deleted in the layer. whole is set if the directory itself
// is visited, too.
func (w *walk) goneBelow(c *change, whole bool) error {
	lower, err := c.at.lower.open(c.name)
	if err != nil {
		w.miss(c.path, false)
		return w.visitor.closed(c)
	}
	defer lower.close()
	return w.pair(&pair{path: c.path, depth: c.at.depth + 1, lower: lower, hidden: true, gone: whole || c.at.gone, rules: c.rulesBelow()})
}

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

// meet records that a change was found for the requested paths at or above path.
func (w *walk) meet(path string) {
	for i, p := range w.paths {
		if p == path || strings.HasPrefix(path, p) && path[len(p)] == '/' {
			w.met[i] = true
		}
	}
}

// unmatched returns a requested path without a change.
func (w *walk) unmatched() (string, bool) {
	if i := slices.Index(w.met, false); i >= 0 {
		return w.paths[i], true
	}
	return "", false
}
