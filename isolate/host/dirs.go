package host

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// An Inode identifies a file or directory of the host.
type Inode struct{ Dev, Ino uint64 }

// InodeOf returns the inode that stat(2) reported.
func InodeOf(st *unix.Stat_t) Inode { return Inode{st.Dev, st.Ino} }

// MakeDir creates a directory of the supervisor. A jail's root can traverse it, but not list it.
func MakeDir(path string) error {
	if err := os.Mkdir(path, 0o711); err != nil {
		return err
	}
	return unix.Chmod(path, 0o711) // the umask is stricter
}

// MountTmpfs creates a directory and mounts a tmpfs there, with flags of mount(2).
func MountTmpfs(path string, flags uintptr) error {
	if err := os.Mkdir(path, 0o711); err != nil {
		return err
	}
	if err := unix.Chmod(path, 0o711); err != nil {
		return &os.PathError{Op: "chmod", Path: path, Err: err}
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", flags, "mode=0755"); err != nil {
		return &os.PathError{Op: "mount tmpfs", Path: path, Err: err}
	}
	return nil
}

// RemoveAll removes a directory of ours. It retries for up to a second while mounts in it are still being removed
// with their mount namespace.
func RemoveAll(path string) error {
	var err error
	for wait := time.Millisecond; wait < time.Second; wait *= 2 {
		if err = os.RemoveAll(path); err == nil || !errors.Is(err, unix.EBUSY) {
			return err
		}
		time.Sleep(wait)
	}
	return err
}

// lockFile locks the file at path, creating it if necessary. It waits for the lock or, without wait, fails with
// unix.EWOULDBLOCK. The lock is released by the returned function or when the process exits.
func lockFile(path string, wait bool) (func(), error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	how := unix.LOCK_EX
	if !wait {
		how |= unix.LOCK_NB
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
