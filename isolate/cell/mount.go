package cell

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"corral/isolate/wire"
)

// A bindMount says where something of a session's is mounted in the supervisor's mount namespace, and where in a
// job's.
type bindMount struct{ source, target string }

// cloneMount makes a detached mount of the directory at path, which must be a path of the supervisor's own, id-mapped
// by userns if that is not nil.
func cloneMount(path string, userns *os.File, readOnly bool) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return nil, fmt.Errorf("open_tree %s: %w", path, err)
	}
	mount := os.NewFile(uintptr(fd), path)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	if userns != nil {
		attr.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attr.Userns_fd = uint64(userns.Fd())
	}
	if readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		mount.Close()
		return nil, fmt.Errorf("mount_setattr %s: %w", path, err)
	}
	return mount, nil
}

// cloneAll clones the source of each mount.
func cloneAll(places []bindMount, clone func(source string) (*os.File, error)) ([]*os.File, error) {
	var list []*os.File
	for _, p := range places {
		mount, err := clone(p.source)
		if err != nil {
			wire.CloseAll(list)
			return nil, err
		}
		list = append(list, mount)
	}
	return list, nil
}
