package audit

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// allocateAhead is how many bytes are allocated in advance.
const allocateAhead = 256 << 10

// allocate allocates n bytes of a file at an offset, and allocateAhead more if possible. It returns the number of bytes
// allocated.
func allocate(f *os.File, from, n int64) (int64, error) {
	err := unix.ENOSPC
	for _, n := range []int64{n + allocateAhead, n} {
		var errno error
		for {
			errno = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, from, n)
			if !errors.Is(errno, unix.EINTR) {
				break
			}
		}
		if errno == nil {
			return n, nil
		}
		errors.As(errno, &err)
	}
	return 0, noRoom(&os.PathError{Op: "fallocate", Path: f.Name(), Err: err}, f)
}

// noRoom adds to err why f has no space, and what to do.
func noRoom(err error, f *os.File) error {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("audit: no space left for the audit log: no job can be recorded or run: %w\nhint: free space on the file system of %s", err, f.Name())
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("audit: the file system of %s cannot allocate space (fallocate): %w\nhint: put the audit log on ext4, xfs, btrfs or tmpfs", f.Name(), err)
	}
	return fmt.Errorf("audit: %w", err)
}
