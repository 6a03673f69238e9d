package layer

import (
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// A dir is an open directory of one of the trees.
type dir struct{ fd int }

const openFlags = unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY

// openRoot opens the root of a tree. The path comes from the program's caller, and may contain links.
func openRoot(path string) (*dir, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return &dir{fd}, nil
}

// open opens the directory name, a single component. For a link or other file it returns ELOOP or ENOTDIR.
func (d *dir) open(name string) (*dir, error) {
	fd, err := d.openat(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &dir{fd}, nil
}

func (d *dir) close() {
	if d != nil {
		unix.Close(d.fd)
	}
}

func (d *dir) openat(name string, flags int, mode uint32) (int, error) {
	return retry(func() (int, error) { return unix.Openat(d.fd, name, flags|openFlags, mode) })
}

// file opens the regular file name for reading. It checks the type only afterwards; opening a FIFO does not block,
// and the devices of a layer cannot be opened.
func (d *dir) file(name string) (int, *unix.Stat_t, error) {
	fd, err := d.openat(name, unix.O_RDONLY, 0)
	if err != nil {
		return -1, nil, err
	}
	st, err := fstat(fd)
	if err == nil && !isFile(st) {
		err = unix.ESTALE // it was replaced
	}
	if err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	return fd, st, nil
}

// lstat returns nil without an error if the name does not exist.
func (d *dir) lstat(name string) (*unix.Stat_t, error) {
	if d == nil {
		return nil, nil
	}
	var st unix.Stat_t
	err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &st, nil
}

func (d *dir) readlink(name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(d.fd, name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// names returns at most limit names of the directory, sorted. whole reports whether these are all.
func (d *dir) names(limit int) (names []string, whole bool, err error) {
	if d == nil {
		return nil, true, nil
	}
	if _, err := unix.Seek(d.fd, 0, unix.SEEK_SET); err != nil {
		return nil, false, err
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := retry(func() (int, error) { return unix.ReadDirent(d.fd, buf) })
		if err != nil || n <= 0 {
			slices.Sort(names)
			return names, err == nil, err
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
		if len(names) > limit {
			slices.Sort(names)
			return names[:limit], false, nil
		}
	}
}

func fstat(fd int) (*unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	return &st, nil
}

// retry repeats f while signals interrupt it.
func retry(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// Extended attributes that overlayfs sets in the upper directory.
const (
	markOpaque   = "user.overlay.opaque"
	markOrigin   = "user.overlay.origin"
	markRedirect = "user.overlay.redirect"
	markMetacopy = "user.overlay.metacopy"
)

// marks are the overlayfs attributes of a directory or file of the upper directory.
type marks struct {
	opaque  bool // the directory hides the one below
	copied  bool // it was copied up from the repository
	unknown bool // it has an attribute that corral's overlays do not set
}

func readMarks(fd int) (m marks, err error) {
	opaque, err := xattr(fd, markOpaque)
	if err != nil {
		return m, err
	}
	m.opaque = string(opaque) == "y"
	m.unknown = opaque != nil && !m.opaque
	for _, name := range []string{markRedirect, markMetacopy} {
		v, err := xattr(fd, name)
		if err != nil {
			return m, err
		}
		m.unknown = m.unknown || v != nil
	}
	origin, err := xattr(fd, markOrigin)
	m.copied = origin != nil
	return m, err
}

// xattr returns the value of an attribute, nil if it is not set.
func xattr(fd int, name string) ([]byte, error) {
	buf := make([]byte, 256) // a file handle has at most 128
	n, err := unix.Fgetxattr(fd, name, buf)
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP):
		return nil, nil
	case errors.Is(err, unix.ERANGE):
		return buf[:1], nil // too long for any known value
	case err != nil:
		return nil, err
	}
	return buf[:n], nil
}
