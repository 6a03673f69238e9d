package host

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"corral/egress/store"
	"corral/store/volume"
)

// Cache opens the directory of the packages that are kept for a user, of keep bytes at most, and gives it to the user id of the process
// that keeps them. The process may keep size bytes.
//
// The directory is a volume, because that process reads what registries send: one that was taken over fills the volume, and not the
// state directory. Nothing in it is opened or followed here, whatever a former process left there.
func (s *State) Cache(user, owner uint32, keep int64) (dir *os.File, size int64, err error) {
	top, err := openOwn(unix.AT_FDCWD, s.path, 0o711)
	if err != nil {
		return nil, 0, err
	}
	defer top.Close()
	all, err := openOwn(int(top.Fd()), "cache", 0o700)
	if err != nil {
		return nil, 0, err
	}
	defer all.Close()
	if err := unix.Fchmod(int(all.Fd()), 0o700); err != nil {
		return nil, 0, &os.PathError{Op: "chmod", Path: all.Name(), Err: err}
	}
	want := sizeOf(keep)
	name := fmt.Sprintf("%d.%d", user, want.Bytes)
	if err := removeOthers(all, fmt.Sprintf("%d.", user), name); err != nil {
		return nil, 0, err
	}
	dir, err = volume.Open(all, name, want)
	if err != nil {
		return nil, 0, fmt.Errorf("the packages of user %d: %w", user, err)
	}
	if size, err = give(dir, owner); err != nil {
		dir.Close()
		return nil, 0, fmt.Errorf("the packages of user %d: %w", user, err)
	}
	return dir, size, nil
}

// spareFiles are files that are no packages: those that are being written.
const spareFiles = 1024

// sizeOf returns the size of a volume for keep bytes. A package takes a block at least, so inodes last as long as bytes.
func sizeOf(keep int64) volume.Size {
	bytes := min(max(keep, volume.MinBytes), volume.MaxBytes)
	return volume.Size{Bytes: bytes, Inodes: min(store.MaxEntries+spareFiles, bytes/store.BlockSize)}
}

// removeOthers removes volumes of a user that have another size: the configuration has changed.
func removeOthers(dir *os.File, prefix, name string) error {
	names, err := dir.Readdirnames(-1) // that root gave
	for _, other := range names {
		if strings.HasPrefix(other, prefix) && other != name {
			err = errors.Join(err, unix.Unlinkat(int(dir.Fd()), other, 0))
		}
	}
	return err
}

// give gives the root directory of a volume to a user, and returns how many bytes of packages fit into it: what the file system needs
// for directories and long files, and the store for its journal, is left.
func give(dir *os.File, owner uint32) (size int64, err error) {
	if err := errors.Join(unix.Fchmod(int(dir.Fd()), 0o700), unix.Fchown(int(dir.Fd()), int(owner), int(owner))); err != nil {
		return 0, err
	}
	_ = unix.Unlinkat(int(dir.Fd()), "lost+found", unix.AT_REMOVEDIR) // nobody needs it, whether it is there or not
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil {
		return 0, fmt.Errorf("statfs: %w", err)
	}
	total := int64(st.Blocks) * st.Bsize
	return total - total/32 - min(store.MaxJournal*3/2, total/8), nil
}
