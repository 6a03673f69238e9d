package audit

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openDelta returns the change of the number of open jobs by an event.
func openDelta(event Event) int64 {
	switch {
	case event == Decided:
		return 1
	case event.closes():
		return -1
	}
	return 0
}

// chunk is how many bytes are allocated in advance.
const chunk = 256 << 10

// reserve allocates the file's next n bytes. A record that closes a job has promised space, so it does not fail for
// it.
func (l *Log) reserve(n int64, promised bool) error {
	if l.at.size+n <= l.at.reserved {
		return nil
	}
	got, err := allocate(l.file, l.at.size, n)
	if err != nil && !promised {
		return err
	}
	if err == nil {
		l.at.reserved = l.at.size + got
	}
	return nil
}

// allocate allocates n bytes of a file at an offset, and chunk more if possible. It returns the number of bytes
// allocated.
func allocate(f *os.File, from, n int64) (int64, error) {
	err := unix.ENOSPC
	for _, n := range []int64{n + chunk, n} {
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

// truncate truncates the current file to size. That frees the space allocated beyond it, so the head is cleared
// first: the next writer relies on what it says.
func (l *Log) truncate(size int64) error {
	if head, err := l.readHead(); err == nil {
		head.reserved = 0
		if _, err := l.head.WriteAt(head.encode(), 0); err != nil {
			l.o.Log.Warn("audit: cannot write the head", "error", err)
		}
	}
	if err := l.file.Truncate(size); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// reallocate allocates the space promised to open jobs again, after it was freed or is not known. If that fails, no
// job is decided until there is space again: reserve ensures that.
func (l *Log) reallocate() {
	l.at.reserved = l.at.size
	if l.at.open == 0 {
		return
	}
	if got, err := allocate(l.file, l.at.size, l.at.open*closerMax); err == nil {
		l.at.reserved += got
	}
}
