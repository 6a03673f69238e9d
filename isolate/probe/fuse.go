package probe

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// openFuseControl mounts a fusectl file system that is attached nowhere. It returns nil if the kernel has none.
func openFuseControl() (*os.File, error) {
	fs, err := unix.Fsopen("fusectl", unix.FSOPEN_CLOEXEC)
	if errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("fsopen fusectl: %w", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("fsconfig fusectl: %w", err)
	}
	root, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, fmt.Errorf("fsmount fusectl: %w", err)
	}
	return os.NewFile(uintptr(root), "fusectl"), nil
}

// abortFUSE aborts the FUSE file systems of the users that match selects, if they have requests under way, and returns their
// number. fuse is the root of a fusectl file system. Only files of the kernel are read and written.
func abortFUSE(fuse *os.File, match func(uid uint32) bool) (int, error) {
	fd, err := unix.Openat(int(fuse.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open fusectl: %w", err)
	}
	dir := os.NewFile(uintptr(fd), "fusectl")
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, name := range names {
		var st unix.Stat_t
		if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || !match(st.Uid) || !hasRequests(fd, name) {
			continue // it may have ended meanwhile
		}
		if control, err := unix.Openat(fd, name+"/abort", unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
			if _, err := unix.Write(control, []byte("1")); err == nil {
				n++
			}
			unix.Close(control)
		}
	}
	return n, nil
}

// hasRequests reports whether a FUSE file system, given by its directory in fusectl, has requests under way.
func hasRequests(dir int, name string) bool {
	fd, err := unix.Openat(dir, name+"/waiting", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var b [32]byte
	n, err := unix.Read(fd, b[:])
	return err == nil && strings.TrimSpace(string(b[:max(n, 0)])) != "0"
}
