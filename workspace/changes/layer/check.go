package layer

import (
	"cmp"
	"time"

	"golang.org/x/sys/unix"

	"corral/job"
	"corral/workspace/changes/stream"
)

// A checker finds conflicts, and writes nothing to the repository.
type checker struct {
	walk     *walk
	base     *base // later changes by the repository's owner are not overwritten
	seconds  bool  // the repository's file system keeps whole seconds
	touched  map[ident]int64
	conflict func(path string, r stream.Reason) error
	planned  func(*stream.Entry) error

	suspects []suspect
	copies   bool            // there are copies where the repository has no file
	found    map[string]bool // suspects that were moved, by path
}

func (v *checker) enter(*pair) error      { return nil }
func (v *checker) leave(*pair) error      { return nil }
func (v *checker) wants(*change) bool     { return true }
func (v *checker) closed(c *change) error { return v.conflict(c.path, stream.NoAccess) }

func (v *checker) visit(c *change) (bool, error) {
	if c.kind == "" && c.barred == 0 {
		return true, nil
	}
	r, path := v.reason(c)
	if r == 0 && c.class() == adds && c.marks.copied && isFile(c.u) {
		v.copies = true
		if v.uncertain(c.at) {
			v.suspects = append(v.suspects, suspect{c.path, keyOf(c.u)})
		}
	}
	if r != 0 {
		return r != stream.Gone, v.conflict(path, r)
	}
	if c.kind == "" {
		return true, nil
	}
	return true, v.planned(v.walk.entry(c))
}

// reason returns why c cannot be applied, and the path of the conflict; 0 if it can.
func (v *checker) reason(c *change) (stream.Reason, string) {
	switch {
	case c.kind == "" && c.barred == 0, typeOf(orElse(c.u, c.l)) == job.TypeOther && c.u != nil:
		return 0, ""
	case c.barred != 0:
		return c.barred, c.path
	case v.base.open[c.path] != 0:
		return v.base.open[c.path], c.path
	case isDir(c.u) && c.marks.copied && !isDir(c.l):
		return stream.Gone, c.path // jobs cannot move a directory of the repository
	case c.l != nil:
		if r, path := v.changed(c); r != 0 {
			return r, path
		}
	}
	if c.kind == job.ChangeMode && !own(c.l) || c.kind != job.ChangeMode && !v.writable(c.at) {
		return stream.Unwritable, c.path
	}
	return 0, ""
}

func orElse(a, b *unix.Stat_t) *unix.Stat_t {
	if a != nil {
		return a
	}
	return b
}

// changed reports whether the path in the repository changed since the session took the repository's state.
func (v *checker) changed(c *change) (r stream.Reason, path string) {
	if !isDir(c.l) {
		if v.late(c.l) {
			return stream.Changed, c.path
		}
		return 0, ""
	}
	if isDir(c.u) {
		// New entries set both times of a directory equally, which hides whether its permissions changed too.
		if v.late(c.l) && c.l.Ctim != c.l.Mtim {
			return stream.Changed, c.path
		}
		return 0, ""
	}
	before, missed := v.walk.incomplete, v.walk.missed
	v.walk.incomplete, v.walk.missed = false, ""
	v.walk.subtree(c, func(d *dir, name, p string, st *unix.Stat_t, _ bool) {
		switch {
		case r != 0:
		case v.base.open[p] != 0:
			r, path = v.base.open[p], p
		case !isDir(st) && v.late(st), isDir(st) && v.made(d, name):
			r, path = stream.Changed, p
		case isDir(st) && !own(st) && unix.Faccessat(d.fd, name, unix.W_OK|unix.X_OK, 0) != nil:
			r, path = stream.Unwritable, p
		}
	})
	if v.walk.incomplete && r == 0 {
		r, path = stream.NoAccess, cmp.Or(v.walk.missed, c.path)
	}
	v.walk.incomplete, v.walk.missed = v.walk.incomplete || before, cmp.Or(missed, v.walk.missed)
	return r, path
}

// late reports whether a file of the repository changed since the session took its state, other than by this program:
// replacing one name of a file updates the time of its other names.
func (v *checker) late(st *unix.Stat_t) bool {
	ctime := st.Ctim.Nano()
	if v.seconds && ctime%int64(time.Second) == 0 {
		ctime += int64(2 * time.Second) // in the worst case the granularity is two seconds
	}
	return !v.mine(st) && ctime >= v.base.since
}

// mine reports whether this program caused the file's time, by changing another name of the file.
func (v *checker) mine(st *unix.Stat_t) bool {
	at, ok := v.touched[identOf(st)]
	return ok && at == st.Ctim.Nano()
}

// wholeSeconds reports whether a file system may store only whole seconds. One with creation times can store more:
// ext4 keeps both in the part of an inode that small inodes lack. A single time with zero nanoseconds is no evidence,
// since a clock can tick at whole seconds.
func wholeSeconds(fd int) bool {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st)
	return err != nil || st.Mask&unix.STATX_BTIME == 0
}

// made reports whether a directory was created since the session took the repository's state. Its ctime does not tell, since new
// entries update it.
func (v *checker) made(d *dir, name string) bool {
	var st unix.Statx_t
	err := unix.Statx(d.fd, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &st)
	if err != nil || st.Mask&unix.STATX_BTIME == 0 {
		return false
	}
	return st.Btime.Sec*int64(time.Second)+int64(st.Btime.Nsec) >= v.base.since
}

// uncertain reports whether the repository's owner may have removed something from the directory, by its time.
func (v *checker) uncertain(p *pair) bool {
	if p.lower == nil {
		return false
	}
	st, err := fstat(p.lower.fd)
	return err != nil || v.late(st)
}

// writable reports whether the directory of the repository can be written to, if necessary after extending its
// permissions. A directory that does not exist yet is writable.
func (v *checker) writable(p *pair) bool {
	if p.lower == nil || p.use.checked {
		return p.lower == nil || p.use.writable
	}
	p.use.checked = true
	p.use.writable = unix.Faccessat(p.lower.fd, ".", unix.W_OK|unix.X_OK, 0) == nil
	if !p.use.writable {
		st, err := fstat(p.lower.fd)
		p.use.writable = err == nil && own(st)
	}
	return p.use.writable
}

// own reports whether a file belongs to this process's user, who may change its permissions.
func own(st *unix.Stat_t) bool { return int(st.Uid) == unix.Geteuid() }
