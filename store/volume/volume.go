// Package volume keeps files of root's processes and of others in file systems of a fixed size: ext4 in a file, on a loop
// device. Whoever may write to one, and is taken over, fills at most that, in bytes and in number of files. The size is that
// of the file, and no process but root's can change it.
//
// Open returns the root directory of a volume that has a name in a directory of root's. It is mounted at no path of any mount
// namespace: the kernel unmounts it when its last file is closed. So nothing is left of a killed process, and nobody reaches
// the volume who was not passed a descriptor. Several processes may have one open.
//
// A volume has no journal. One that was not unmounted, because the machine crashed, is made again, empty: it is for what can
// be requested once more. Package isolate/layer has file systems for what must be kept.
//
// The package needs root, mkfs.ext4 (mke2fs(8)) and the loop driver (loop(4)); Open needs Linux 5.2 (fsmount(2)).
package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Bounds of a volume in bytes.
const (
	MinBytes = 16 << 20
	MaxBytes = 1 << 40
)

// ErrNoRoom is returned by Open if the file system of the directory has too little space.
var ErrNoRoom = errors.New("no room for a volume")

// A Size is what a volume has at most.
type Size struct {
	Bytes  int64 // of MinBytes to MaxBytes
	Inodes int64 // at most one for 4096 bytes
}

// Open returns the root directory of the volume that is called name in a directory of root's, which is made with a size if
// there is none, or if it was damaged. At most half of the free space is given to a new one. The size of a present one stays.
func Open(dir *os.File, name string, size Size) (*os.File, error) {
	if size.Bytes < MinBytes || size.Bytes > MaxBytes || size.Inodes > size.Bytes/blockSize {
		return nil, fmt.Errorf("a volume of %d bytes and %d files: must have %d to %d bytes, and 4096 for each file", size.Bytes, size.Inodes, MinBytes, MaxBytes)
	}
	unlock, err := lock(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	root, err := openPresent(dir, name)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, ErrDamaged) {
		if err = create(dir, name, size); err == nil {
			root, err = openPresent(dir, name)
		}
	}
	return root, err
}

// OpenPresent is Open for a volume that exists: the error is fs.ErrNotExist or ErrDamaged if there is none that can be used.
func OpenPresent(dir *os.File, name string) (*os.File, error) {
	unlock, err := lock(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return openPresent(dir, name)
}

// lock keeps other processes from attaching volumes of a directory to loop devices, until unlock is called: a file that has
// two devices is destroyed.
func lock(dir *os.File) (unlock func(), err error) {
	// A descriptor of its own: flock(2) does not exclude users of the same one.
	fd, err := unix.Openat(int(dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir.Name(), Err: err}
	}
	for {
		if err = unix.Flock(fd, unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, &os.PathError{Op: "lock", Path: dir.Name(), Err: err}
	}
	return func() { unix.Close(fd) }, nil
}

// openPresent is OpenPresent for a caller with the lock.
func openPresent(dir *os.File, name string) (*os.File, error) {
	path := filepath.Join(dir.Name(), name)
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != 0 || st.Mode&0o022 != 0 {
		return nil, fmt.Errorf("%s must be a file of root that no other user can write", path)
	}
	device, err := deviceOf(file, name, &st)
	if err != nil {
		return nil, err
	}
	defer device.Close()
	root, err := mount(device.Node())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return root, nil
}

// deviceOf returns the loop device of a volume that is mounted, or attaches it to one.
func deviceOf(file *os.File, name string, st *unix.Stat_t) (*Loop, error) {
	l, err := attached(name, st.Dev, st.Ino)
	if l != nil || err != nil {
		return l, err
	}
	clean, err := Clean(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if !clean {
		return nil, fmt.Errorf("%w: it was not unmounted", ErrDamaged)
	}
	return Attach(file, false)
}

// mount mounts an ext4 file system at no path, and returns its root directory.
func mount(node string) (*os.File, error) {
	context, err := unix.Fsopen("ext4", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("%w: fsopen: %w", ErrHost, err)
	}
	defer unix.Close(context)
	// Space that is freed is returned to the host. After an error, nothing is written any more.
	err = errors.Join(
		unix.FsconfigSetString(context, "source", node), unix.FsconfigSetFlag(context, "discard"),
		unix.FsconfigSetString(context, "errors", "remount-ro"),
	)
	if err == nil {
		err = unix.FsconfigCreate(context)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: mount: %w", ErrDamaged, err)
	}
	const attributes = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_NOATIME
	mounted, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return nil, fmt.Errorf("%w: fsmount: %w", ErrHost, err)
	}
	defer unix.Close(mounted) // open files keep it
	root, err := unix.Openat(mounted, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: node, Err: err}
	}
	return os.NewFile(uintptr(root), "volume"), nil
}

// blockSize is that of the file system, in bytes.
const blockSize = 4096

// create makes an empty volume, in place of one that may be there. The caller has the lock.
func create(dir *os.File, name string, size Size) error {
	if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "unlink", Path: name, Err: err}
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	bytes := min(size.Bytes, int64(st.Bavail)*st.Bsize/2) / blockSize * blockSize
	if bytes < MinBytes {
		return fmt.Errorf("%w: %d MiB of the file system of %s are free, must be %d",
			ErrNoRoom, int64(st.Bavail)*st.Bsize>>20, dir.Name(), 2*MinBytes>>20)
	}
	fd, err := unix.Openat(int(dir.Fd()), ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("%w: a file without a name in %s: %w\nhint: keep the state directory on ext4, xfs, btrfs or tmpfs", ErrHost, dir.Name(), err)
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	if err := Format(file, bytes, min(size.Inodes, bytes/blockSize)); err != nil {
		return err
	}
	if err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), int(dir.Fd()), name, unix.AT_SYMLINK_FOLLOW); err != nil {
		return &os.LinkError{Op: "link", Old: "volume", New: filepath.Join(dir.Name(), name), Err: err}
	}
	return nil
}
