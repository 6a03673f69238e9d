package layer

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// sparse is the size above which holes are skipped.
const sparse = 1 << 20

// nextData returns the offset of the next data of a file from at on, or size.
func nextData(fd int, at, size int64) int64 {
	n, err := unix.Seek(fd, at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size
	case err != nil:
		return at // a file system without holes
	}
	return min(n, size)
}

// holeAfter returns the end of the data at offset at.
func holeAfter(fd int, at, size int64) int64 {
	n, err := unix.Seek(fd, at, unix.SEEK_HOLE)
	if err != nil || n <= at {
		return size
	}
	return min(n, size)
}

// readAt fills p from offset at, and reports whether it succeeded.
func readAt(fd int, p []byte, at int64) bool {
	for len(p) > 0 {
		n, err := retry(func() (int, error) { return unix.Pread(fd, p, at) })
		if err != nil || n <= 0 {
			return false
		}
		p, at = p[n:], at+int64(n)
	}
	return true
}

func writeAt(fd int, p []byte, at int64) error {
	for len(p) > 0 {
		n, err := retry(func() (int, error) { return unix.Pwrite(fd, p, at) })
		if err != nil {
			return err
		}
		p, at = p[n:], at+int64(n)
	}
	return nil
}

// copyContent copies size bytes and preserves holes.
func copyContent(dst, src int, size int64) error {
	if err := unix.Ftruncate(dst, size); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	buf := make([]byte, 256<<10)
	for at := nextData(src, 0, size); at < size; at = nextData(src, at, size) {
		end := holeAfter(src, at, size)
		for at < end {
			n := int(min(end-at, int64(len(buf))))
			if !readAt(src, buf[:n], at) {
				return errors.New("read: the file was truncated meanwhile")
			}
			if err := writeAt(dst, buf[:n], at); err != nil {
				return fmt.Errorf("write: %w", err)
			}
			at += int64(n)
		}
	}
	return nil
}
