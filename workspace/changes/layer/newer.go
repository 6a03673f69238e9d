package layer

import (
	"context"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/scan"
	"corral/workspace/changes/stream"
)

// A newerWalk finds what changed in the repository since the session took its state.
type newerWalk struct {
	*checker
	walk *walk
	w    *stream.Writer
	left int // records that may still be written
	n    int64
}

// newer writes a record for each path of the repository that is newer than the session's base and among paths or below (none: all), at
// most b.List, and returns how many there are.
func (t *trees) newer(ctx context.Context, b Bounds, v *checker, w *stream.Writer, paths []string) (n int64, whole bool, err error) {
	k := &newerWalk{checker: v, walk: newWalk(ctx, b, paths, nil), w: w, left: b.List}
	_, err = k.dir(t.upper, t.lower, "", 0)
	return k.n, !k.walk.incomplete, err
}

// dir reports what is newer in a directory, and whether that is anything. upper is nil if the layer has no directory there.
func (v *newerWalk) dir(upper, lower *dir, path string, depth int) (found bool, err error) {
	if depth > v.walk.bounds.Depth {
		v.walk.miss(path, true)
		return false, nil
	}
	for _, name := range v.walk.names(lower, path) {
		if v.walk.over() {
			return found, nil
		}
		at := filepath.Join(path, name)
		within := v.walk.reach(at)
		if within == nowhere {
			continue
		}
		st, err := lower.lstat(name)
		if err != nil {
			v.walk.miss(at, false)
		}
		if st == nil || isTemp(name) || within == partly && !isDir(st) {
			continue
		}
		newer, err := v.entry(upper, lower, name, at, depth, st)
		if err != nil {
			return found, err
		}
		found = found || newer
	}
	return found, nil
}

func (v *newerWalk) entry(upper, lower *dir, name, path string, depth int, st *unix.Stat_t) (found bool, err error) {
	touched, _ := upper.lstat(name)
	if !isDir(st) {
		if !v.late(st) && v.base.open[path] == 0 {
			return false, nil
		}
		return true, v.report(stream.Newer{Path: path, Touched: touched != nil})
	}
	in, err := lower.open(name)
	if err != nil {
		v.walk.miss(path, false)
		return false, nil
	}
	defer in.close()
	var above *dir
	if isDir(touched) {
		above, _ = upper.open(name)
		defer above.close()
	}
	if scan.IsDotGit(name) { // git writes many files for one action of a user
		quiet := &newerWalk{checker: v.checker, walk: v.walk}
		if found, err = quiet.dir(nil, in, path, depth+1); found {
			err = v.report(stream.Newer{Path: path, Dir: true, Touched: above != nil})
		}
		return found, err
	}
	if found, err = v.dir(above, in, path, depth+1); found || err != nil {
		return found, err
	}
	// Nothing in it is newer than the base, but its own times are: something was removed from it.
	if now, err := fstat(in.fd); err == nil && v.late(now) && v.walk.reach(path) == wholly {
		return true, v.report(stream.Newer{Path: path, Dir: true})
	}
	return false, nil
}

func (v *newerWalk) report(n stream.Newer) error {
	if v.n++; v.n > int64(v.left) {
		return nil
	}
	return v.w.Newer(n)
}

// Newer writes a record for each path of the repository at and below Options.Paths that changed since the session took its state, which
// was at first when it was opened.
func Newer(ctx context.Context, o Options, opened time.Time, w *stream.Writer) error {
	t, err := o.open()
	if err != nil {
		return err
	}
	defer t.close()
	v, err := t.checker(opened)
	if err != nil {
		return err
	}
	b := o.Bounds.withDefaults(30 * time.Second)
	n, whole, err := t.newer(ctx, b, &v, w, o.Paths)
	if err != nil {
		return err
	}
	return w.End(&stream.Sum{Newer: n, Incomplete: !whole})
}
