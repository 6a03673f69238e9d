package layer

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Ways to shut down an ext4 file system: EXT4_IOC_SHUTDOWN in the kernel's fs/ext4/ext4.h.
const (
	ioctlShutdown   = 0x8004587d // _IOR('X', 125, __u32)
	shutdownFlush   = 0          // after writing everything to the device
	shutdownDiscard = 2          // at once
)

// shutDown makes the file system of a layer that is still attached unusable for all who hold files of it: their reads and
// writes fail with EIO. With keep, everything is first written to the layer's file.
func (l *Layer) shutDown(keep bool) error {
	// While the device is open, it stays attached to the same file.
	device, err := os.OpenFile(l.loop.Node(), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer device.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(l.file.Fd()), &st); err != nil {
		return err
	}
	if used, err := l.loop.BackedBy(device, st.Dev, st.Ino); err != nil || !used {
		return err
	}
	// A second mount of the device is one of the same file system. The first one is gone, and with it all ways to open its root.
	if err := unix.Mount(l.loop.Node(), l.path, "ext4", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, ""); err != nil {
		return fmt.Errorf("mount it again: %w", err)
	}
	defer unix.Unmount(l.path, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH) //nolint:errcheck // it was mounted here
	root, err := os.OpenFile(l.path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer root.Close()
	how := uint32(shutdownDiscard)
	if keep {
		how = shutdownFlush
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, root.Fd(), ioctlShutdown, uintptr(unsafe.Pointer(&how))); errno != 0 {
		return fmt.Errorf("ioctl: %w", errno)
	}
	return nil
}
