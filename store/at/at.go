// Package at opens files by a descriptor of their directory and a name, as openat(2) does, and follows no link.
//
// Stores use it for directories that other users may have had a hand in: names are single elements of a path, so that
// nobody can redirect them by replacing a directory above.
package at

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Flags for Open, and modes of what stores create.
const (
	Dir      = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	DirMode  = 0o700
	FileMode = 0o600
)

// Err wraps err with the operation and the file name, like package os. It returns nil for nil.
func Err(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: name, Err: err}
}

// Open opens a name in a directory, and returns its descriptor, which the caller must close. A file that flags create has
// FileMode.
func Open(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags, FileMode)
		if !errors.Is(err, unix.EINTR) {
			return fd, Err("open", name, err)
		}
	}
}

// Reopen returns a descriptor of a directory that stays open when the caller closes dir. The caller must close it.
func Reopen(dir *os.File) (int, error) {
	c, err := dir.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	if cerr := c.Control(func(d uintptr) { fd, err = Open(int(d), ".", Dir) }); cerr != nil {
		return -1, cerr
	}
	return fd, err
}

// Regular opens a regular file in a directory for reading, and returns its status. It waits for no writer of a pipe, and reads from no
// device. The error for a link is unix.ELOOP.
func Regular(dir *os.File, name string) (*os.File, unix.Stat_t, error) {
	var st unix.Stat_t
	path := filepath.Join(dir.Name(), name)
	fd, err := Open(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC)
	if err != nil {
		return nil, st, Err("open", path, errors.Unwrap(err))
	}
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		err = ErrNotRegular
	}
	if err != nil {
		unix.Close(fd)
		return nil, st, Err("open", path, err)
	}
	return os.NewFile(uintptr(fd), path), st, nil
}

// ErrNotRegular is returned by Regular for a file of another type.
var ErrNotRegular = errors.New("it is not a regular file")

// Stat returns the status of a name in a directory. Of a link it is that of the link.
func Stat(dir int, name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, Err("stat", name, err)
}

// Names returns at most limit names in a directory, unsorted; -1 means all.
func Names(dir, limit int) ([]string, error) {
	fd, err := Open(dir, ".", Dir)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close()
	all, err := f.Readdirnames(limit)
	if errors.Is(err, io.EOF) { // it is empty
		err = nil
	}
	return all, err
}
