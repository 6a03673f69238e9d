package inside

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Mount points in the jail's root, see rootfs: an overlay's two parts are mounted there while it is created.
const (
	lowerDir = "/var/lower"
	layerDir = "/var/layer"
)

// overlay merges the detached mount fds[0] and the directories upper and work of the detached mount fds[1], and returns a
// detached mount of the result, which the caller closes. The jail's root owns the overlay, so that the kernel, acting on
// the owner's behalf, has no more rights than that user: hence userxattr. Without it the jail could not mount an overlay
// at all.
//
// userxattr turns metacopy and redirect_dir off (overlayfs.rst, "User xattr"): upper can be read without the kernel's
// help. Volatile: a layer ends with its session, or with an orderly unmount.
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
