package layer

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"corral/workspace/changes/stream"
)

// unchanged returns an error unless a name in the repository is still as the walk found it.
func (a *applier) unchanged(c *change) error {
	now, err := c.at.lower.lstat(c.name)
	switch {
	case err != nil:
		return err
	case now == nil && c.l == nil:
		return nil
	case now == nil, c.l == nil, identOf(now) != identOf(c.l), now.Size != c.l.Size:
		return a.refuse(c.path, stream.Changed)
	case now.Ctim != c.l.Ctim && !a.mine(now):
		return a.refuse(c.path, stream.Changed)
	}
	return nil
}

// file copies a file of the layer to a temporary file in the repository, and returns errPending.
func (a *applier) file(c *change) error {
	src, st, err := c.at.upper.file(c.name)
	if err != nil {
		return err
	}
	defer unix.Close(src)
	tmp, err := a.temps.file(c.at.lower)
	if err != nil {
		return err
	}
	if err := a.fill(c, tmp, src, st); err != nil {
		tmp.discard()
		return err
	}
	a.pending = append(a.pending, pendingFile{c: c, tmp: tmp})
	return errPending
}

// fill copies content, permissions and time of the layer's file src to the temporary file.
func (a *applier) fill(c *change, tmp *temp, src int, st *unix.Stat_t) error {
	if err := copyContent(tmp.fd, src, st.Size); err != nil {
		return err
	}
	// If a job wrote to the file meanwhile, the copy may be a mixture of two states.
	after, err := fstat(src)
	if err != nil {
		return err
	}
	if after.Ctim != st.Ctim || after.Size != st.Size || !a.asReviewed(c, tmp, st) {
		return a.refuse(c.path, stream.Moving)
	}
	if err := errors.Join(access(c, tmp.fd, st.Mode&permissions), tmp.setTime(st.Mtim)); err != nil || !a.seconds {
		return err
	}
	if now, err := fstat(tmp.fd); err == nil && now.Ctim.Nsec == 0 {
		a.clock = 2 * time.Second // see late
	}
	return nil
}

// asReviewed reports whether a copy of a file of the layer is what was reviewed. A store through mapped memory need not change
// the file's times.
func (a *applier) asReviewed(c *change, tmp *temp, st *unix.Stat_t) bool {
	if a.reviewed == nil {
		return true
	}
	want, ok := a.reviewed[c.path]
	now, err := fstat(tmp.fd)
	if !ok || err != nil || st.Mode&permissions != want.mode {
		return false
	}
	sum, ok := a.walk.hashFile(tmp.fd, now)
	return ok && sum == want.content
}

// symlink copies a link of the layer to the repository, with any target.
func (a *applier) symlink(c *change) error {
	to, err := c.at.upper.readlink(c.name)
	if err != nil {
		return err
	}
	if want, ok := a.reviewed[c.path]; a.reviewed != nil && (!ok || want.link != to) {
		return a.refuse(c.path, stream.Moving)
	}
	tmp, err := a.temps.link(c.at.lower, to)
	if err != nil {
		return err
	}
	defer tmp.discard()
	if err := tmp.setTime(c.u.Mtim); err != nil {
		return err
	}
	return a.place(c, tmp)
}

// place renames a temporary file to its name, if the repository is unchanged there.
func (a *applier) place(c *change, tmp *temp) error {
	if err := a.unchanged(c); err != nil {
		return err
	}
	if c.l == nil {
		err := unix.Renameat2(c.at.lower.fd, tmp.name, c.at.lower.fd, c.name, unix.RENAME_NOREPLACE)
		switch {
		case err == nil:
			tmp.placed = true
			return nil
		case errors.Is(err, unix.EEXIST):
			return a.refuse(c.path, stream.Changed)
		case !errors.Is(err, unix.EINVAL):
			return fmt.Errorf("rename: %w", err)
		} // the file system does not support RENAME_NOREPLACE
	}
	return a.touching(c.at.lower, c.name, c.l, func() error {
		if err := unix.Renameat(c.at.lower.fd, tmp.name, c.at.lower.fd, c.name); err != nil {
			return fmt.Errorf("rename: %w", err)
		}
		tmp.placed = true
		return nil
	})
}

// touching calls do, which removes a name of a file, and records the ctime that the file's other names get by it.
func (a *applier) touching(d *dir, name string, st *unix.Stat_t, do func() error) error {
	if st == nil || isDir(st) || st.Nlink < 2 {
		return do()
	}
	fd, err := d.openat(name, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := do(); err != nil {
		return err
	}
	now, err := fstat(fd)
	if err == nil {
		a.touched[identOf(now)] = now.Ctim.Nano()
	}
	return err
}

// mkdir creates a directory of the layer in the repository. leave sets its permissions and time.
func (a *applier) mkdir(c *change) error {
	if err := unix.Mkdirat(c.at.lower.fd, c.name, c.u.Mode&permissions|0o700); err != nil {
		if errors.Is(err, unix.EEXIST) {
			return a.refuse(c.path, stream.Changed)
		}
		return fmt.Errorf("mkdir: %w", err)
	}
	c.made = c.u
	return nil
}

// settle sets permissions and time of a new directory. It keeps other mode bits, such as an inherited set-group-ID bit.
func settle(d *dir, as *unix.Stat_t) error {
	st, err := fstat(d.fd)
	if err != nil {
		return err
	}
	if st.Mode&permissions != as.Mode&permissions {
		err = unix.Fchmod(d.fd, st.Mode&^permissions&0o7777|as.Mode&permissions)
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, as.Mtim}
	return errors.Join(err, unix.UtimesNanoAt(d.fd, ".", times, 0))
}

// chmod changes permissions in place.
func (a *applier) chmod(c *change) error {
	flags := unix.O_PATH
	if isDir(c.l) {
		flags |= unix.O_DIRECTORY
	}
	fd, err := c.at.lower.openat(c.name, flags, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	st, err := fstat(fd)
	if err != nil {
		return err
	}
	if identOf(st) != identOf(c.l) || st.Ctim != c.l.Ctim {
		return a.refuse(c.path, stream.Changed)
	}
	// An unreadable file can only be opened with O_PATH, which fchmod(2) refuses; chmod of its name in /proc works.
	mode := st.Mode&0o7777&^permissions | c.u.Mode&permissions
	if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode&0o1777); err != nil {
		return fmt.Errorf("chmod: %w", err)
	}
	return nil
}

// remove removes a name of the repository, with everything below it.
func (a *applier) remove(c *change) error {
	if err := a.unchanged(c); err != nil {
		return err
	}
	if err := a.removeAt(c.at.lower, c.name, c.path, c.l, c.at.depth); err != nil {
		return err
	}
	c.replaced = isDir(c.u)
	return nil
}

func (a *applier) removeAt(d *dir, name, path string, st *unix.Stat_t, depth int) error {
	if !isDir(st) {
		return a.touching(d, name, st, func() error {
			if err := unix.Unlinkat(d.fd, name, 0); err != nil {
				return fmt.Errorf("remove: %w", err)
			}
			return nil
		})
	}
	if depth > a.walk.bounds.Depth || a.walk.over() {
		return a.refuse(path, stream.NoAccess)
	}
	if err := a.empty(d, name, path, depth); err != nil {
		return err
	}
	if err := unix.Unlinkat(d.fd, name, unix.AT_REMOVEDIR); err != nil {
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			return a.refuse(path, stream.Changed)
		}
		return fmt.Errorf("remove: %w", err)
	}
	return nil
}

// empty removes the contents of a directory, unless they changed since the session took the repository's state.
func (a *applier) empty(d *dir, name, path string, depth int) error {
	sub, err := d.open(name)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer sub.close()
	if unix.Faccessat(sub.fd, ".", unix.W_OK|unix.X_OK, 0) != nil {
		if err := unix.Fchmod(sub.fd, 0o700); err != nil {
			return fmt.Errorf("make the directory writable: %w", err)
		}
	}
	for _, n := range a.walk.names(sub, path) {
		p := path + "/" + n
		st, err := sub.lstat(n)
		switch {
		case err != nil:
			return err
		case st == nil:
			continue
		case !isTemp(n) && (!isDir(st) && a.late(st) || isDir(st) && a.made(sub, n)):
			return a.refuse(p, stream.Changed)
		}
		if err := a.removeAt(sub, n, p, st, depth+1); err != nil {
			return err
		}
	}
	return nil
}
