package layer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/workspace/changes/stream"
)

// A base says which state of the repository a session's changes are relative to. It is as new as the session until something
// takes the state that the repository then has: an apply, a revert or a refresh. It is written to a directory of the layer
// that no job sees, and lasts as long as the layer.
type base struct {
	since int64 // nanoseconds: what changed earlier in the repository is the state that the session works on
	// open has the conflicts that existed at that time. They last until the session has the repository's version, or the
	// repository's owner accepts the session's.
	open map[string]stream.Reason
}

// errNoConflict is the error for an accepted path without a conflict.
var errNoConflict = errors.New("no conflict at this path")

const (
	stateName   = "state"
	stateFormat = "corral base 1"
	// maxState is the maximum size of the state in bytes. The repository's state is not taken with more conflicts.
	maxState = 4 << 20
)

// readBase reads the base of a session that was opened at a time.
func (t *trees) readBase(opened int64) (*base, error) {
	b := &base{since: opened, open: map[string]stream.Reason{}}
	if t.base == nil {
		return b, nil
	}
	fd, st, err := t.base.file(stateName)
	if errors.Is(err, unix.ENOENT) {
		return b, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the session's base: %w", err)
	}
	f := os.NewFile(uintptr(fd), stateName)
	defer f.Close()
	if st.Size > maxState {
		return nil, fmt.Errorf("the session's base has %d bytes, more than the maximum of %d", st.Size, maxState)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxState))
	if err == nil {
		err = b.parse(text)
	}
	if err != nil {
		return nil, fmt.Errorf("read the session's base: %w", err)
	}
	return b, nil
}

func (b *base) parse(text []byte) error {
	head, rest, _ := bytes.Cut(text, []byte("\n"))
	since, found := strings.CutPrefix(string(head), stateFormat+" ")
	n, err := strconv.ParseInt(since, 10, 64)
	if !found || err != nil {
		return fmt.Errorf("it begins with %.80q, not with %q and a time", head, stateFormat)
	}
	b.since = max(b.since, n)
	for len(rest) > 0 {
		one, more, whole := bytes.Cut(rest, []byte{0})
		if !whole || len(one) < 2 {
			return errors.New("it is cut off")
		}
		b.open[string(one[1:])], rest = stream.Reason(one[0]), more
	}
	return nil
}

// write replaces the base of the layer.
func (b *base) write(t *trees) error {
	text := fmt.Appendf(nil, "%s %d\n", stateFormat, b.since)
	for path, r := range b.open {
		text = append(append(append(text, byte(r)), path...), 0)
	}
	if len(text) > maxState {
		return fmt.Errorf("%d conflicts are too many to record", len(b.open))
	}
	const next = stateName + ".new"
	fd, err := t.base.openat(next, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = writeAt(fd, text, 0)
	if err == nil {
		err = unix.Fsync(fd)
	}
	if err = errors.Join(err, unix.Close(fd)); err == nil {
		err = unix.Renameat(t.base.fd, next, t.base.fd, stateName)
	}
	return err
}

// take makes the state that the repository has now the session's base: it drops from the layer what is equal in the repository, so
// that the session sees the repository's own files there from now on, and records what is in conflict at present. At and below accepted
// nothing is in conflict any more. The overlay shows the repository's state when its caches are dropped, which
// the supervisor does at the end of the run; no job of the session runs until then.
func (t *trees) take(ctx context.Context, b Bounds, v *checker, accepted []string, wait time.Duration) error {
	if t.base == nil {
		return errors.New("the layer has no directory for the session's base, and no space for one")
	}
	next := &base{since: settledTime(ctx, wait), open: map[string]stream.Reason{}}
	v.conflict = func(path string, r stream.Reason) error {
		switch {
		case r == stream.Changed, r == stream.Gone:
			next.open[path] = r
		case r != stream.Unwritable && t.lower.has(path): // that cannot be examined, so it is not known to be none
			next.open[path] = stream.Changed
		}
		return nil
	}
	v.planned = func(*stream.Entry) error { return nil }
	v.suspects, v.copies, v.found = nil, false, nil
	v.walk = newWalk(ctx, b, nil, v)
	v.walk.compare = true
	if err := errors.Join(v.walk.run(t), v.search(ctx, b, t), v.vanished()); err != nil {
		return err
	}
	if v.walk.short {
		return errors.New(v.walk.unexamined())
	}
	if err := next.accept(newWalk(ctx, b, accepted, nil)); err != nil {
		return err
	}
	p := &pruner{walk: newWalk(ctx, b, nil, nil)}
	p.walk.compare = true
	p.dir(t.root())
	if err := next.write(t); err != nil {
		return fmt.Errorf("record the session's base: %w", err)
	}
	*v.base = *next
	return nil
}

// accept drops the conflicts at and below the walk's paths.
func (b *base) accept(w *walk) error {
	if len(w.paths) == 0 {
		return nil
	}
	for path := range b.open {
		if w.reach(path) == wholly {
			w.meet(path)
			delete(b.open, path)
		}
	}
	if path, ok := w.unmatched(); ok {
		return fmt.Errorf("%q: %w", path, errNoConflict)
	}
	return nil
}

// settledTime waits until files that change from now on get a later time than those that changed before, and returns that
// time. Files get the time of the clock that ticks, or of the exact one. wait is for file systems with a coarser clock.
func settledTime(ctx context.Context, wait time.Duration) int64 {
	began := time.Now().Add(wait)
	for n := 0; ; n++ {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
			return time.Now().UnixNano()
		}
		if now.Nano() > began.UnixNano() || n > int(wait/time.Millisecond)+1000 || ctx.Err() != nil {
			return now.Nano()
		}
		time.Sleep(time.Millisecond)
	}
}

// A pruner removes from the layer what is equal in the repository.
type pruner struct{ walk *walk }

// dir removes what is equal below a directory of both trees, and reports whether all of it is equal.
func (v *pruner) dir(p *pair) bool {
	if p.depth > v.walk.bounds.Depth {
		return false
	}
	names := v.walk.names(p.upper, p.path)
	if p.hidden {
		names = append(names, v.walk.names(p.lower, p.path)...)
	}
	same := true
	for _, name := range names {
		if v.walk.over() {
			return false
		}
		same = !isTemp(name) && v.entry(p, name) && same
	}
	return same && !v.walk.short
}

func (v *pruner) entry(p *pair, name string) bool {
	c := &change{at: p, name: name, path: p.join(name)}
	differs := v.walk.look(c)
	defer func() { c.dir.close() }()
	switch {
	case v.walk.short:
		return false
	case c.u == nil && c.l == nil: // a deletion that is done
		v.unlink(c, 0)
		return true
	case !differs:
		return !p.hidden
	case c.u == nil || c.l == nil || c.barred != 0:
		return false
	case isDir(c.u) && isDir(c.l):
		return v.directory(c)
	}
	if v.walk.classify(c); c.kind != "" || c.barred != 0 {
		return false
	}
	v.unlink(c, 0)
	return true
}

// directory is entry for a directory that both trees have. One that hides the repository's no longer does if they are equal.
func (v *pruner) directory(c *change) bool {
	lower, err := c.at.lower.open(c.name)
	if err != nil {
		return false
	}
	defer lower.close()
	sub := &pair{path: c.path, depth: c.at.depth + 1, upper: c.dir, lower: lower, hidden: c.at.hidden || c.marks.opaque}
	same := v.dir(sub) && (c.u.Mode^c.l.Mode)&permissions == 0
	if !same || c.at.hidden {
		return same
	}
	if c.marks.opaque {
		if unix.Fremovexattr(c.dir.fd, markOpaque) != nil {
			return true
		}
		sub.hidden = false
		v.dir(sub)
	}
	v.unlink(c, unix.AT_REMOVEDIR)
	return true
}

// unlink removes a name of the layer, unless that would hide the repository's. An error leaves what is equal anyway.
func (v *pruner) unlink(c *change, flags int) {
	if !c.at.hidden {
		_ = unix.Unlinkat(c.at.upper.fd, c.name, flags)
	}
}
