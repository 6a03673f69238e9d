package layer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"corral/job"
	"corral/workspace/changes/stream"
)

// maxConflicts is the maximum number of conflicts in a stream; further ones are only counted.
const maxConflicts = 10_000

// errConflict ends an apply that meets a conflict that did not exist when everything was checked.
var errConflict = errors.New("conflict")

// Apply applies the changes of the layer at Options.Paths to the repository. If any of them cannot be applied, none
// is. opened is the time when the session was opened, see [job.Session]: a path that the session has changed
// differently, and that has a later time in the repository, is a conflict, unless the session has taken the repository's
// state since. With dry, nothing is written. Otherwise the session takes the repository's state at the end, which has what
// was applied.
//
// If expect is not zero, nothing is applied unless the changes have that digest. The caller must make sure that
// nobody writes to the layer, and that no other changes are applied to the repository, meanwhile. Somebody can all the same, if a job has
// passed on a descriptor of a file: each file is then compared with what has that digest after it was copied, and before it gets its
// name.
//
// Changes that are not begun when ctx ends are not applied. The stream reports the changes that were applied.
func Apply(ctx context.Context, o Options, opened time.Time, expect stream.Digest, dry bool, w *stream.Writer) error {
	t, err := o.open()
	if err != nil {
		return err
	}
	defer t.close()
	b := o.Bounds.withDefaults(time.Hour)
	b.Bytes = unlimited
	a := &applier{w: w, temps: newTemps(), left: b.List}
	if a.checker, err = t.checker(opened); err != nil {
		return err
	}
	a.checker.conflict, a.planned = a.conflict, func(e *stream.Entry) error { return a.plan(e, dry) }
	// Permissions must not depend on the umask: jobs may have opened files to others.
	defer unix.Umask(unix.Umask(0))
	if err := a.run(ctx, o, b, t, expect, dry); err != nil {
		return err
	}
	return w.End(&a.total)
}

// An applier applies the changes of the layer to the repository, in several walks.
type applier struct {
	checker
	w     *stream.Writer
	temps *temps
	// reviewed has the files and links that the expected digest is of, by path; nil if any changes may be applied.
	reviewed map[string]reviewed
	phase    class
	pending  []pendingFile
	left     int           // entries that may still be written to the stream
	clock    time.Duration // how coarse the clock of the repository's file system is, as far as that was seen
	total    stream.Sum
}

func (a *applier) run(ctx context.Context, o Options, b Bounds, t *trees, expect stream.Digest, dry bool) error {
	check := newWalk(ctx, b, o.Paths, &a.checker)
	check.compare, a.walk = true, check
	if o.Digest || expect != (stream.Digest{}) {
		check.sum = newDigest()
	}
	if expect != (stream.Digest{}) {
		a.reviewed = map[string]reviewed{}
		check.sum.each = a.reviewed
	}
	if err := errors.Join(check.run(t), a.search(ctx, b, t), a.vanished()); err != nil {
		return err
	}
	a.total.Incomplete, a.total.Missed, a.total.Digest = check.incomplete, check.missed, check.sum.result(!check.incomplete)
	path, unmatched := check.unmatched()
	switch {
	case expect != (stream.Digest{}) && expect != a.total.Digest:
		a.total.Failed = errOtherChanges(check, a.total.Digest)
		return nil
	case a.total.Conflicts > 0 || dry:
		return nil
	case unmatched && !check.incomplete:
		a.total.Failed = failure(path, errNoChange)
		return nil
	case check.incomplete:
		a.total.Failed = check.unexamined() + "; nothing was applied"
		return nil
	}
	whole, err := a.write(ctx, o, b, t)
	if !whole && a.total.Applied == 0 || err != nil {
		return err
	}
	if err := t.take(ctx, b, &a.checker, nil, a.clock); err != nil && whole {
		a.total.Failed = fmt.Sprintf("everything is applied, but the next apply of the same paths will report conflicts: %v", err)
	}
	return nil
}

// write applies what was checked, and reports whether all of it was applied.
func (a *applier) write(ctx context.Context, o Options, b Bounds, t *trees) (whole bool, err error) {
	if !t.begin() {
		sweep(newWalk(ctx, b, nil, nil), t.lower, "", 0)
	}
	defer t.ended()
	if err := a.record(ctx, b, o.Paths, t); err != nil {
		return false, err
	}
	for _, a.phase = range []class{adds, alters, deletes} {
		next := newWalk(ctx, b, o.Paths, a)
		next.compare, a.walk = a.phase == alters, next
		err := next.run(t)
		switch {
		case errors.Is(err, errConflict):
			a.total.Failed = "the repository changed during the apply; the remaining changes were not applied"
		case err == nil && next.incomplete:
			a.total.Failed = next.unexamined() + "; the remaining changes were not applied"
		case err != nil:
			a.total.Failed = err.Error()
		default:
			continue
		}
		return false, nil
	}
	return true, nil
}

// errOtherChanges returns the message for changes whose digest now is not the expected one.
func errOtherChanges(w *walk, now stream.Digest) string {
	if now == (stream.Digest{}) {
		return w.unexamined() + ", so the digest of the changes is unknown; nothing was applied"
	}
	return fmt.Sprintf("the changes do not have the expected digest, but %v; nothing was applied", now)
}

// conflict counts a conflict, and writes it to the stream unless there are too many.
func (a *applier) conflict(path string, r stream.Reason) error {
	if a.total.Conflicts++; a.total.Conflicts > maxConflicts {
		return nil
	}
	return a.w.Conflict(stream.Conflict{Path: path, Reason: r})
}

// plan counts an entry. A dry run also writes it to the stream.
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
	return a.emit(e)
}

func (a *applier) emit(e *stream.Entry) error {
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

// refuse ends the apply at a conflict that did not exist when everything was checked.
func (a *applier) refuse(path string, r stream.Reason) error {
	return errors.Join(a.conflict(path, r), fmt.Errorf("%w: %q", errConflict, path))
}

func (a *applier) visit(c *change) (bool, error) {
	if c.kind == "" && c.barred == 0 {
		return true, nil
	}
	if c.at.lower == nil { // its directory was removed after the check, or after this apply created it
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
		return false, a.emit(e)
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
	return true, a.emit(e)
}

// do applies one change. It returns errPending for a file that still needs its name.
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

// lift makes the directory writable until leave.
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
		return fmt.Errorf("make its directory writable: %w", err)
	}
	return nil
}

// leave restores the permissions of a directory, and syncs it to the disk.
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

// applying is the name of a file beside the session's base that exists while an apply writes.
const applying = "applying"

// begin records that an apply begins to write. It returns false if an earlier one of the session did not end: it was killed, and may
// have left temporary files anywhere.
func (t *trees) begin() (clean bool) {
	if t.base == nil {
		return false
	}
	fd, err := t.base.openat(applying, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}

// ended records that an apply has ended, and removed its temporary files.
func (t *trees) ended() {
	if t.base != nil {
		_ = unix.Unlinkat(t.base.fd, applying, 0) // otherwise the next apply looks for some in vain
	}
}

// sweep removes the temporary files of killed applies, also those of other sessions, wherever they are in the repository: no other
// apply to it runs. What cannot be removed is left; clean reports it in directories that this apply changes.
func sweep(w *walk, d *dir, path string, depth int) {
	if depth > w.bounds.Depth {
		return
	}
	for _, name := range w.names(d, path) {
		if w.over() {
			return
		}
		if isTemp(name) {
			_ = unix.Unlinkat(d.fd, name, 0)
			continue
		}
		st, err := d.lstat(name)
		if err != nil || !isDir(st) {
			continue
		}
		if sub, err := d.open(name); err == nil {
			sweep(w, sub, filepath.Join(path, name), depth+1)
			sub.close()
		}
	}
}

// clean removes the temporary files of killed applies from a directory.
func (a *applier) clean(p *pair) error {
	for _, name := range a.walk.names(p.lower, p.path) {
		if !isTemp(name) {
			continue
		}
		err := a.lift(p)
		if err == nil {
			err = unix.Unlinkat(p.lower.fd, name, 0)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EISDIR) {
			return fmt.Errorf("%q: remove a temporary file of an earlier apply: %w", p.join(name), err)
		}
	}
	return nil
}
