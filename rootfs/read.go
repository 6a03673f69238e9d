package rootfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Wrappers of system calls: relative to a directory, and repeated if a signal interrupts them (also one that the Go
// runtime uses for preemption).

func openat(dir int, name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags, mode)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// open opens an absolute path of the host below the host's root with the RESOLVE_ flags of openat2(2). Resolution
// never leaves that root.
func (b *builder) open(p string, flags, resolve uint64) (fd int, err error) {
	how := unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: resolve | unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
	// The kernel rejects the combination of both.
	if resolve&unix.RESOLVE_IN_ROOT != 0 {
		how.Resolve &^= unix.RESOLVE_BENEATH
	}
	for range 10000 { // EAGAIN: a rename or mount anywhere on the system, if the path has ".."
		fd, err = unix.Openat2(int(b.root.Fd()), "."+p, &how)
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	return fd, err
}

// readlinkat returns the target of the link name in dir.
func readlinkat(dir int, name string) (string, error) {
	buf := make([]byte, maxPath+1)
	n, err := unix.Readlinkat(dir, name, buf)
	switch {
	case err != nil:
		return "", err
	case n > maxPath:
		return "", unix.ENAMETOOLONG
	}
	return string(buf[:n]), nil
}

// readAll reads fd into buf until the end of the file or of buf.
func readAll(fd int, buf []byte) (n int, err error) {
	for n < len(buf) {
		m, err := unix.Read(fd, buf[n:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return n, err
		case m == 0:
			return n, nil
		default:
			n += m
		}
	}
	return n, nil
}

// list returns the names in a directory, sorted so that trees are reproducible.
func list(d *os.File) ([]string, error) {
	names, err := d.Readdirnames(maxCount + 1)
	switch {
	case errors.Is(err, io.EOF): // an empty directory
		return nil, nil
	case err != nil:
		return nil, err
	case len(names) > maxCount:
		return nil, fmt.Errorf("more than %d names", maxCount)
	}
	slices.Sort(names)
	return names, nil
}
