package artifact

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"corral/store/artifact/manifest"
)

// Files are opened relative to a descriptor of their directory, by a name without a slash, and with O_NOFOLLOW, so
// that no symbolic link is followed.
const (
	dirFlags  = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	readFlags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	makeFlags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	dirMode   = 0o700
	fileMode  = 0o600
)

// errName wraps err with the operation and the file name, like package os.
func errName(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: name, Err: err}
}

func openat(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags, fileMode)
		if !errors.Is(err, unix.EINTR) {
			return fd, errName("open", name, err)
		}
	}
}

// A fdWriter writes to an open file, which the caller owns.
type fdWriter int

func (fd fdWriter) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		n, err := unix.Write(int(fd), p[done:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return done, os.NewSyscallError("write", err)
		}
		done += n
	}
	return len(p), nil
}

// openFile opens a regular file for reading.
func openFile(dir int, name string) (*os.File, error) {
	fd, err := openat(dir, name, readFlags)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return nil, errors.Join(err, fmt.Errorf("%s is not a file", name))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// names returns at most limit names in a directory, unsorted; -1 means all.
func names(dir int, limit int) ([]string, error) {
	fd, err := openat(dir, ".", dirFlags)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close()
	all, err := f.Readdirnames(limit)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return all, err
}

// removeDir removes a directory of files. Another process may be removing it at the same time.
func removeDir(dir int, name string) error {
	fd, err := openat(dir, name, dirFlags)
	if err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return err
	}
	defer unix.Close(fd)
	for _, file := range manifest.Files {
		_ = unix.Unlinkat(fd, file, 0)
	}
	err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) {
		others, _ := names(fd, 1000)
		for _, o := range others {
			_ = unix.Unlinkat(fd, o, 0)
		}
		err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	}
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return errName("remove", name, err)
}

// tryLock locks an open directory or file until the descriptor is closed or the process ends.
func tryLock(fd int) error {
	for {
		if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
