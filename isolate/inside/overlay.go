package inside

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Mount points of the jail's root, see rootfs: where an overlay's two parts are while it is made.
const (
	lowerDir = "/var/lower"
	layerDir = "/var/layer"
)

// overlay merges the detached mount fds[0] and the directories upper and work of the detached mount fds[1], and returns a
// detached mount of the two. The jail's root is its owner, so that what the kernel does in its name can be no more than
// what that may do: hence userxattr. Without it the jail could not mount one at all.
//
// Neither metacopy nor redirect_dir is on with userxattr (overlayfs.rst, "User xattr"): what is in upper can be read
// without the kernel. Volatile: a layer ends with its session, or with an orderly unmount.
func overlay(fds []int) (int, error) {
	if len(fds) != 2 {
		return -1, unix.EBADF
	}
	for i, path := range []string{lowerDir, layerDir} {
		if err := unix.MoveMount(fds[i], "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return -1, fmt.Errorf("move_mount %s: %w", path, err)
		}
		defer func() { _ = unix.Unmount(path, unix.MNT_DETACH) }()
	}
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("fsopen overlay: %w", err)
	}
	defer unix.Close(fs)
	err = errors.Join(
		unix.FsconfigSetString(fs, "source", "overlay"),
		unix.FsconfigSetString(fs, "lowerdir", lowerDir),
		unix.FsconfigSetString(fs, "upperdir", layerDir+"/upper"),
		unix.FsconfigSetString(fs, "workdir", layerDir+"/work"),
		unix.FsconfigSetFlag(fs, "userxattr"),
		unix.FsconfigSetFlag(fs, "volatile"),
	)
	if err == nil {
		err = unix.FsconfigCreate(fs)
	}
	if err != nil {
		return -1, fmt.Errorf("overlay: %w", err)
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
}
