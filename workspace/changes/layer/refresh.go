package layer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/workspace/changes/stream"
)

// Refresh makes the repository's present state the one that the session works on: the session then sees it in all that it has
// not changed. What both have changed is a conflict, written to the stream, until one side is given up: the session's by
// Revert, or the repository's by Refresh with the path in Options.Paths. The stream first has what was newer in the repository.
// The caller must make sure that nobody writes to the layer meanwhile, and that the overlay's caches are dropped afterwards.
func Refresh(ctx context.Context, o Options, opened time.Time, w *stream.Writer) error {
	return o.retake(ctx, opened, w, func(t *trees, b Bounds, v *checker, total *stream.Sum) (err error) {
		total.Newer, _, err = t.newer(ctx, b, v, w, nil)
		return err
	}, o.Paths)
}

// Revert removes from the layer what the session changed at and below Options.Paths (none: everything), so that it sees the
// repository's files there, and refreshes the rest. The stream has the changes that are given up.
func Revert(ctx context.Context, o Options, opened time.Time, w *stream.Writer) error {
	return o.retake(ctx, opened, w, func(t *trees, b Bounds, v *checker, total *stream.Sum) error {
		l := &lister{w: w, left: b.List, leftSensitive: b.List}
		l.walk = newWalk(ctx, b, o.Paths, l)
		l.walk.compare = true
		if err := l.walk.run(t); err != nil {
			return err
		}
		*total = l.total
		if path, ok := l.walk.unmatched(); ok {
			return fmt.Errorf("%q: %w", path, errNoChange)
		}
		r := &reverter{walk: newWalk(ctx, b, nil, nil), trees: t}
		return r.all(o.Paths)
	}, nil)
}

// retake runs do, and then has the session take the repository's state.
func (o Options) retake(ctx context.Context, opened time.Time, w *stream.Writer,
	do func(*trees, Bounds, *checker, *stream.Sum) error, accepted []string,
) error {
	t, err := o.open()
	if err != nil {
		return err
	}
	defer t.close()
	v, err := t.checker(opened)
	if err != nil {
		return err
	}
	b := o.Bounds.withDefaults(time.Hour)
	b.Bytes = unlimited
	var total stream.Sum
	if err = do(t, b, &v, &total); err == nil {
		err = t.take(ctx, b, &v, accepted, 0)
	}
	if err != nil {
		total.Failed = err.Error()
		return w.End(&total)
	}
	for path, r := range v.base.open {
		if total.Conflicts++; total.Conflicts <= maxConflicts {
			if err := w.Conflict(stream.Conflict{Path: path, Reason: r}); err != nil {
				return err
			}
		}
	}
	return w.End(&total)
}

// A reverter removes what a session wrote to its layer.
type reverter struct {
	walk  *walk
	trees *trees
}

func (r *reverter) all(paths []string) error {
	if len(paths) == 0 {
		for _, name := range r.walk.names(r.trees.upper, "") {
			if err := r.remove(r.trees.upper, name, 0); err != nil {
				return fmt.Errorf("%q: %w", name, err)
			}
		}
		return nil
	}
	for _, path := range paths {
		if err := r.path(path); err != nil {
			return fmt.Errorf("%q: %w", path, err)
		}
	}
	return nil
}

// path removes one path from the layer. The directories above it must not hide those of the repository: then it would be hidden,
// too, instead of being the repository's.
func (r *reverter) path(path string) error {
	at, above := r.trees.upper, ""
	for {
		name, rest, more := strings.Cut(path, "/")
		if !more {
			return r.remove(at, name, 0)
		}
		above = filepath.Join(above, name)
		next, err := r.enter(at, name, above)
		if err != nil {
			return err
		}
		defer next.close()
		at, path = next, rest
	}
}

// enter opens a directory of the layer above a path to remove.
func (r *reverter) enter(at *dir, name, path string) (*dir, error) {
	st, err := at.lstat(name)
	switch {
	case err != nil:
		return nil, err
	case st == nil:
		return nil, errNoChange
	case !isDir(st):
		return nil, fmt.Errorf("the session removed %q: revert that", path)
	}
	next, err := at.open(name)
	if err != nil {
		return nil, err
	}
	m, err := readMarks(next.fd)
	if err == nil && m.opaque && r.trees.lower.has(path) {
		err = fmt.Errorf("the session replaced the directory %q: revert that", path)
	}
	if err != nil {
		next.close()
		return nil, err
	}
	return next, nil
}

// remove removes a name of the layer and everything below it. Nothing there is not an error: what the walk found can be a part of
// what is above.
func (r *reverter) remove(d *dir, name string, depth int) error {
	st, err := d.lstat(name)
	if err != nil || st == nil {
		return err
	}
	if !isDir(st) {
		return unix.Unlinkat(d.fd, name, 0)
	}
	if depth > r.walk.bounds.Depth || r.walk.over() {
		return errors.New("it has too many files to remove them")
	}
	sub, err := d.open(name)
	if errors.Is(err, unix.EACCES) && unix.Fchmodat(d.fd, name, 0o700, 0) == nil {
		sub, err = d.open(name)
	}
	if err != nil {
		return err
	}
	defer sub.close()
	if unix.Faccessat(sub.fd, ".", unix.W_OK|unix.X_OK, 0) != nil {
		if err := unix.Fchmod(sub.fd, 0o700); err != nil {
			return err
		}
	}
	for _, n := range r.walk.names(sub, name) {
		if err := r.remove(sub, n, depth+1); err != nil {
			return fmt.Errorf("%q: %w", n, err)
		}
	}
	return unix.Unlinkat(d.fd, name, unix.AT_REMOVEDIR)
}
