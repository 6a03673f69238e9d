package artifact

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"corral/store/at"
)

// Flags for files, which are opened by the descriptor of their directory (package at).
const (
	readFlags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	makeFlags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
)

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
	fd, err := at.Open(dir, name, readFlags)
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

// removeDir removes a directory of files. Another process may be removing it at the same time.
func removeDir(dir int, name string) error {
	fd, err := at.Open(dir, name, at.Dir)
	if err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return err
	}
	defer unix.Close(fd)
	for _, file := range artifactFiles {
		_ = unix.Unlinkat(fd, file, 0)
	}
	err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) {
		others, _ := at.Names(fd, 1000)
		for _, o := range others {
			_ = unix.Unlinkat(fd, o, 0)
		}
		err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	}
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return at.Err("remove", name, err)
}
