package layer

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"

	"corral/job"
	"corral/workspace/changes/stream"
)

// A checker finds conflicts, and writes nothing to the repository.
type checker struct {
	walk     *walk
	since    int64 // nanoseconds; later changes by the repository's owner are not overwritten
	seconds  bool  // the repository's file system keeps whole seconds
	touched  map[ident]int64
	conflict func(path string, r stream.Reason) error
	planned  func(*stream.Entry) error

	// A file that was copied from the repository and no longer exists there was either moved by a job or removed by
	// the repository's owner. It was moved if its origin still exists at a path that the layer has removed or
	// replaced: seen contains the inodes of these.
	moved []suspect
	seen  map[uint64]bool
}

// A suspect is a file of the layer whose original may have been removed from the repository.
type suspect struct {
	path   string
	origin []byte
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
	if r == 0 && c.class() != deletes && c.l == nil && c.marks.copied && !isDir(c.u) && v.uncertain(c.at) {
		v.moved = append(v.moved, suspect{c.path, c.marks.origin})
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

// changed reports whether the path in the repository changed since the session was opened.
func (v *checker) changed(c *change) (r stream.Reason, path string) {
	if !isDir(c.l) {
		v.note(c.l)
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
	before := v.walk.incomplete
	v.walk.incomplete = false
	v.walk.subtree(c, func(d *dir, name, p string, st *unix.Stat_t, _ bool) {
		v.note(st)
		switch {
		case r != 0:
		case !isDir(st) && v.late(st), isDir(st) && v.made(d, name):
			r, path = stream.Changed, p
		case isDir(st) && !own(st) && unix.Faccessat(d.fd, name, unix.W_OK|unix.X_OK, 0) != nil:
			r, path = stream.Unwritable, p
		}
	})
	if v.walk.incomplete && r == 0 {
		r, path = stream.NoAccess, c.path
	}
	v.walk.incomplete = v.walk.incomplete || before
	return r, path
}

// note records a file as a possible origin of a moved one.
func (v *checker) note(st *unix.Stat_t) {
	if v.seen != nil && !isDir(st) {
		v.seen[st.Ino] = true
	}
}

// late reports whether a file of the repository changed since the session was opened, other than by this program:
// replacing one name of a file updates the time of its other names.
func (v *checker) late(st *unix.Stat_t) bool {
	ctime := st.Ctim.Nano()
	if v.seconds && ctime%int64(time.Second) == 0 {
		ctime += int64(2 * time.Second) // in the worst case the granularity is two seconds
	}
	return !v.mine(st) && ctime >= v.since
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

// made reports whether a directory was created since the session was opened. Its ctime does not tell, since new
// entries update it.
func (v *checker) made(d *dir, name string) bool {
	var st unix.Statx_t
	err := unix.Statx(d.fd, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &st)
	if err != nil || st.Mask&unix.STATX_BTIME == 0 {
		return false
	}
	return st.Btime.Sec*int64(time.Second)+int64(st.Btime.Nsec) >= v.since
}

// uncertain reports whether the repository's owner may have removed something from the directory, by its time.
func (v *checker) uncertain(p *pair) bool {
	if p.lower == nil {
		return false
	}
	st, err := fstat(p.lower.fd)
	return err != nil || v.late(st)
}

// vanished reports a conflict for each suspect that was not moved.
func (v *checker) vanished() error {
	for _, s := range v.moved {
		if ino, ok := inode(s.origin); ok && v.seen[ino] {
			continue
		}
		if err := v.conflict(s.path, stream.Gone); err != nil {
			return err
		}
	}
	return nil
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

// The encodings of an inode number in a file handle, by file system: type and length of the handle, offset and length
// of the number. See enum fid_type and shmem_encode_fh in the kernel, xfs_export.h and btrfs's export.h.
var handles = []struct {
	kind      byte
	size      int
	at, bytes int
}{
	{0x01, 8, 0, 4},  // ext4 and most others: number, generation
	{0x01, 12, 4, 8}, // tmpfs: generation, number
	{0x81, 12, 0, 8}, // xfs: number, generation
	{0x4d, 20, 0, 8}, // btrfs: number, subvolume, generation
}

// The header of user.overlay.origin: struct ovl_fb in fs/overlayfs/overlayfs.h.
const (
	originMagic = 0xfb
	originType  = 4
	originHead  = 21
)

// inode returns the inode number in origin, if its format is known.
func inode(origin []byte) (ino uint64, ok bool) {
	if len(origin) < originHead || origin[1] != originMagic {
		return 0, false
	}
	handle := origin[originHead:]
	for _, h := range handles {
		if h.kind != origin[originType] || h.size != len(handle) {
			continue
		}
		if h.bytes == 4 {
			return uint64(binary.NativeEndian.Uint32(handle[h.at:])), true
		}
		return binary.NativeEndian.Uint64(handle[h.at:]), true
	}
	return 0, false
}
