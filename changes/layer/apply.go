package layer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"corral/changes/stream"
	"corral/job"
)

// maxConflicts bounds the conflicts in a stream; those beyond it are counted.
const maxConflicts = 10_000

// errConflict ends an apply that has met a conflict where there was none before.
var errConflict = errors.New("conflict")

// Apply makes the repository what the layer says, as far as Options.Paths go. Unless all of it can be done nothing is:
// opened is when the session was opened, see [job.Session]: what has a later time in the repository, at a path that the
// session has changed to something else, is a conflict. With dry, nothing is done in any case.
//
// If expect is not zero, nothing is done unless the changes have that digest. The caller must see to it that nobody writes to the
// layer meanwhile.
//
// Changes that are not begun when ctx ends are not done. The stream tells what was done.
func Apply(ctx context.Context, o Options, opened time.Time, expect stream.Digest, dry bool, w *stream.Writer) error {
	t, err := o.open()
	if err != nil {
		return err
	}
	defer t.close()
	if !dry {
		// Closed with the tree.
		if err := unix.Flock(t.lower.fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return fmt.Errorf("the repository is locked: %w\nhint: wait for the other apply to end", err)
		}
	}
	b := o.Bounds.withDefaults(time.Hour)
	b.Bytes = 1 << 62
	a := &applier{w: w, temps: newTemps(), left: b.List}
	a.checker = checker{
		since: opened.UnixNano(), seconds: wholeSeconds(t.lower.fd), touched: map[ident]int64{}, seen: map[uint64]bool{}, conflict: a.conflict,
		planned: func(e *stream.Entry) error { return a.plan(e, dry) },
	}
	// In a directory that a job has made, or opened to others, permissions are as it says.
	defer unix.Umask(unix.Umask(0))
	if err := a.run(ctx, o, b, t, expect, dry); err != nil {
		return err
	}
	return w.End(&a.total)
}

// An applier makes the repository what the layer says, in several walks.
type applier struct {
	checker
	w       *stream.Writer
	temps   *temps
	phase   class
	pending []placing
	left    int // entries that may still be told
	total   stream.Sum
}

func (a *applier) run(ctx context.Context, o Options, b Bounds, t *trees, expect stream.Digest, dry bool) error {
	check := newWalk(ctx, b, o.Paths, &a.checker)
	check.compare, a.walk = true, check
	if o.Digest || expect != (stream.Digest{}) {
		check.sum = newDigest()
	}
	if err := errors.Join(check.run(t), a.vanished()); err != nil {
		return err
	}
	a.total.Incomplete, a.total.Digest = check.incomplete, check.sum.result(!check.incomplete)
	path, unmatched := check.unmatched()
	switch {
	case expect != (stream.Digest{}) && expect != a.total.Digest:
		a.total.Failed = errOtherChanges(a.total.Digest)
		return nil
	case a.total.Conflicts > 0 || dry:
		return nil
	case unmatched && !check.incomplete:
		a.total.Failed = failure(path, errNoChange)
		return nil
	case check.incomplete:
		a.total.Failed = "not everything could be looked at, and nothing was applied"
		return nil
	}
	a.moved, a.seen = nil, nil
	for _, a.phase = range []class{adds, alters, deletes} {
		next := newWalk(ctx, b, o.Paths, a)
		next.compare, a.walk = a.phase == alters, next
		err := next.run(t)
		switch {
		case errors.Is(err, errConflict):
			a.total.Failed = "the repository was changed while it was applied to; what is left was not applied"
		case err == nil && next.incomplete:
			a.total.Failed = "stopped before everything was applied"
		case err != nil:
			a.total.Failed = err.Error()
		default:
			continue
		}
		return nil
	}
	return nil
}

// errOtherChanges says that the changes are not the expected ones, and which they are.
func errOtherChanges(now stream.Digest) string {
	if now == (stream.Digest{}) {
		return "not everything could be looked at, so the changes cannot be compared with the expected digest, and nothing was applied"
	}
	return fmt.Sprintf("the changes are not those of the expected digest: theirs is %v; nothing was applied", now)
}

// conflict tells of one.
func (a *applier) conflict(path string, r stream.Reason) error {
	if a.total.Conflicts++; a.total.Conflicts > maxConflicts {
		return nil
	}
	return a.w.Conflict(stream.Conflict{Path: path, Reason: r})
}

// plan counts an entry. Only a dry run tells it.
func (a *applier) plan(e *stream.Entry, dry bool) error {
	a.total.Entries++
	if e.Kind == job.ChangeDeleted {
		a.total.Bytes += e.OldSize
	} else {
		a.total.Bytes += e.Size
	}
	if !dry {
		return nil
	}
	e.State = stream.Planned
	if e.Type == job.TypeOther && e.Kind != job.ChangeDeleted {
		e.State = stream.Skipped
		a.total.Skipped++
	}
	return a.tell(e)
}

func (a *applier) tell(e *stream.Entry) error {
	if a.left--; a.left < 0 {
		a.total.More++
		return nil
	}
	return a.w.Entry(e)
}

func (a *applier) enter(p *pair) error {
	if a.phase != adds || p.lower == nil {
		return nil
	}
	return a.clean(p)
}

func (a *applier) wants(c *change) bool {
	return c.class() == a.phase || a.phase == alters && c.class() == adds && c.at.fresh
}

func (a *applier) closed(c *change) error { return a.refuse(c.path, stream.NoAccess) }

// refuse ends the apply at a conflict that was not there before.
func (a *applier) refuse(path string, r stream.Reason) error {
	return errors.Join(a.conflict(path, r), fmt.Errorf("%w: %q", errConflict, path))
}

func (a *applier) visit(c *change) (bool, error) {
	if c.kind == "" && c.barred == 0 {
		return true, nil
	}
	if c.at.lower == nil { // it was there when everything was checked, or was made since
		return false, a.refuse(c.at.path, stream.Changed)
	}
	if r, path := a.reason(c); r != 0 {
		return false, a.refuse(path, r)
	}
	e := a.walk.entry(c)
	e.State = stream.Applied
	if c.u != nil && typeOf(c.u) == job.TypeOther {
		e.State = stream.Skipped
		a.total.Skipped++
		return false, a.tell(e)
	}
	err := a.do(c)
	switch {
	case errors.Is(err, errPending):
		a.pending[len(a.pending)-1].entry = e
		if c.kind == job.ChangeReplaced || len(a.pending) >= maxPending {
			err = a.flush()
		} else {
			err = nil
		}
		return true, err
	case errors.Is(err, errConflict):
		return false, err
	case err != nil:
		return false, fmt.Errorf("%q: %w", c.path, err)
	}
	a.total.Applied++
	return true, a.tell(e)
}

// do applies one change, or returns errPending.
func (a *applier) do(c *change) error {
	if c.kind == job.ChangeMode && (isDir(c.u) || c.l.Nlink == 1) {
		return a.chmod(c)
	}
	if err := a.lift(c.at); err != nil {
		return err
	}
	if isDir(c.l) || isDir(c.u) && c.l != nil || c.u == nil {
		if err := a.remove(c); err != nil {
			return err
		}
		c.l = nil
	}
	switch {
	case c.u == nil:
		return nil
	case isDir(c.u):
		return a.mkdir(c)
	case isLink(c.u):
		return a.symlink(c)
	}
	return a.file(c)
}

// lift makes the directory one that can be written to.
func (a *applier) lift(p *pair) error {
	p.use.dirty = true
	if p.use.opened || unix.Faccessat(p.lower.fd, ".", unix.W_OK|unix.X_OK, 0) == nil {
		return nil
	}
	st, err := fstat(p.lower.fd)
	if err != nil {
		return err
	}
	p.use.opened, p.use.mode = true, st.Mode&0o7777
	if err := unix.Fchmod(p.lower.fd, p.use.mode|0o700); err != nil {
		return fmt.Errorf("open its directory to writing: %w", err)
	}
	return nil
}

// leave sees to it that what was done in a directory lasts.
func (a *applier) leave(p *pair) error {
	err := a.flush() // while the directories are open
	if p.lower == nil {
		return err
	}
	if p.use.opened {
		err = errors.Join(err, unix.Fchmod(p.lower.fd, p.use.mode))
	}
	if p.use.made != nil {
		err = errors.Join(err, settle(p.lower, p.use.made))
	}
	if p.use.dirty {
		err = errors.Join(err, unix.Fsync(p.lower.fd))
	}
	return err
}
